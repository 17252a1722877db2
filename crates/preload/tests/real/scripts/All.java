import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

class All {
    static void show(String... words) throws Exception {
        var builder = new ProcessBuilder(words);
        builder.environment().put("OWN", "value x");
        builder.directory(new File("/"));
        try {
            var process = builder.start();
            try (var in = process.getOutputStream()) {
                in.write("given\n".getBytes());
            } catch (java.io.IOException error) {
                // It has ended already.
            }
            var out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            var err = new String(process.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
            System.out.println(List.of(words) + " " + out + err + process.waitFor());
        } catch (java.io.IOException error) {
            System.out.println(error.getMessage());
        }
    }

    public static void main(String[] args) throws Exception {
        show("cat");
        show("pwd");
        show("printenv", "OWN");
        show("sh", "-c", "ls /proc/self/fd | wc -l; exit 3");
        show("sh", "-c", "kill -9 $$");
        show("/nonexistent");
        show("ls", "/nonexistent");
        var many = new ArrayList<Process>();
        for (int n = 0; n < 20; n++) many.add(new ProcessBuilder("expr", "" + n, "+", "1").start());
        for (var process : many) System.out.print(new String(process.getInputStream().readAllBytes()).trim() + " ");
        var inherited = new ProcessBuilder("sh", "-c", "echo out; echo err >&2").inheritIO().start();
        System.exit(inherited.waitFor() + 9);
    }
}
