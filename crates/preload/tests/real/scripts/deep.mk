# Below another make. The three wait for each other, so with one job at a time they are alone.
.PHONY: four a b c nothing
four: a b c
	@echo all of $(words $^)
nothing: ; @true
define meet
@touch $(DIRECTORY)/$@; n=0; \
 while test $$(ls $(DIRECTORY) | wc -l) -lt 3 -a $$n -lt 400; do sleep 0.05; n=$$((n+1)); done; test $$n -lt 400 || echo alone
endef
ifneq ($(MAKECMDGOALS),nothing)
DIRECTORY := $(shell mktemp -d ./meetXXXXXX)
endif
a b c: ; $(meet)
