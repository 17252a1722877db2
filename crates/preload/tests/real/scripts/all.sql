create table t (line text);
create table n (number int);
copy t from program 'seq 5';
copy t from program 'seq 5 | sort -r';
copy t from program 'expr "2" + ''3''';
copy t from program 'pwd';
copy t from program '/bin/pwd';
copy t from program 'exit 3';
copy t from program 'nonesuch --x';
copy t from program 'kill -9 $$';
copy t from program 'cat /nonexistent';
copy t from program 'yes | head -50000';
copy n from program 'yes';
select count(*), count(distinct line) from t;
select line from t where length(line) > 1 order by line;
copy t to program 'sort | uniq -c > sorted';
copy t to program 'cat > unsorted';
copy t to program 'exit 4';
copy t to program 'true';
copy t from program 'cat sorted';
select count(*) from t where line like '%50000 y';
\! uname -s
\! exit 3
\! nonesuch
\o |sort -r
select generate_series(1, 3);
\o
\set kernel `uname -s`
\echo :kernel
\copy t from program 'seq 3'
\copy t to program 'wc -l'
\copy t from program 'exit 5'
