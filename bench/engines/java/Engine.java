// The Java engine of `forkless bench`: ProcessBuilder. The protocol is in ../README.md.

import java.io.BufferedReader;
import java.io.FileReader;
import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

final class Engine {
    private final List<String> command;
    private final List<ByteBuffer> memory = new ArrayList<>(); // kept until the end

    private Engine(List<String> command) {
        this.command = command;
    }

    public static void main(String[] args) throws IOException {
        if (args.length < 1) {
            System.err.println("usage: java Engine PROGRAM [ARGS]...; requests at 3, answers at 4");
            System.exit(2);
        }
        Engine engine = new Engine(List.of(args));
        try (BufferedReader requests = new BufferedReader(new FileReader("/proc/self/fd/3"));
                PrintWriter answers = new PrintWriter(new FileWriter("/proc/self/fd/4"), true)) {
            answers.println("forkless-engine 2 " + System.getProperty("java.version"));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                try {
                    answers.println(engine.answer(line));
                } catch (IOException | InterruptedException | IllegalStateException error) {
                    answers.println("failed " + String.valueOf(error.getMessage()).replace('\n', ' '));
                    System.exit(1);
                }
            }
        }
    }

    private String answer(String request) throws IOException, InterruptedException {
        String[] words = request.split(" ");
        switch (words[0]) {
            case "plain":
                return "ok";
            case "memory":
                touch(Integer.parseInt(words[1]));
                return "ok";
            case "turn":
                return turn(Long.parseLong(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
            default:
                throw new IllegalStateException("unknown request " + request);
        }
    }

    // Outside the heap, so that the garbage collector has nothing to do with it.
    private void touch(int mib) {
        for (int i = 0; i < mib; i++) {
            ByteBuffer block = ByteBuffer.allocateDirect(1 << 20);
            for (int offset = 0; offset < block.capacity(); offset += 4096) {
                block.put(offset, (byte) 1);
            }
            memory.add(block);
        }
    }

    private void launch(List<Long> samples) throws IOException, InterruptedException {
        long start = System.nanoTime();
        Process process = new ProcessBuilder(command).inheritIO().start();
        long held = System.nanoTime() - start;
        int status = process.waitFor();
        long total = System.nanoTime() - start;
        if (status != 0) {
            throw new IllegalStateException("the program did not exit with 0 but with " + status);
        }
        samples.add(held);
        samples.add(total);
    }

    private String turn(long limit, long fewest, long most) throws IOException, InterruptedException {
        launch(new ArrayList<>());
        List<Long> samples = new ArrayList<>();
        long cpu = cpuTime();
        long start = System.nanoTime();
        for (long n = 0; n < most && (n < fewest || System.nanoTime() - start < limit); n++) {
            launch(samples);
        }
        long wall = System.nanoTime() - start;
        StringBuilder answer = new StringBuilder("done " + wall + " " + Math.max(0, cpuTime() - cpu));
        samples.forEach(figure -> answer.append(' ').append(figure));
        return answer.toString();
    }

    // Java tells nothing of its children's time; the kernel does, in ticks.
    private static long cpuTime() throws IOException {
        var own = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        String stat = Files.readString(Path.of("/proc/self/stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        long ticks = Long.parseLong(fields[13]) + Long.parseLong(fields[14]);
        return own.getProcessCpuTime() + ticks * 10_000_000;
    }
}
