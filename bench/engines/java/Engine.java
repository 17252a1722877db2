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
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

final class Engine {
    private final List<String> command;
    private final List<ByteBuffer> memory = new ArrayList<>(); // kept until the end
    private int crowd = 1; // threads that launch at once
    // When the launches began that are counted.
    private long begun;
    private long cpuBefore;

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
            answers.println("forkless-engine 2 " + System.getProperty("java.version") + " threads");
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                try {
                    answers.println(engine.answer(line));
                } catch (Exception error) {
                    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                    answers.println("failed " + String.valueOf(cause.getMessage()).replace('\n', ' '));
                    System.exit(1);
                }
            }
        }
    }

    private String answer(String request) throws Exception {
        String[] words = request.split(" ");
        switch (words[0]) {
            case "plain":
                return "ok";
            case "memory":
                touch(Integer.parseInt(words[1]));
                return "ok";
            case "threads":
                crowd = Integer.parseInt(words[1]);
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

    // One launch after the other, the first of them uncounted and before the barrier, where others wait for this one.
    private List<Long> launches(long limit, long fewest, long most, CyclicBarrier barrier) throws Exception {
        try {
            launch(new ArrayList<>());
        } finally {
            barrier.await();
        }
        List<Long> samples = new ArrayList<>();
        long start = System.nanoTime();
        for (long n = 0; n < most && (n < fewest || System.nanoTime() - start < limit); n++) {
            launch(samples);
        }
        return samples;
    }

    private String turn(long limit, long fewest, long most) throws Exception {
        CyclicBarrier barrier = new CyclicBarrier(crowd, () -> {
            cpuBefore = cpuTime();
            begun = System.nanoTime();
        });
        List<List<Long>> runs = new ArrayList<>();
        if (crowd == 1) {
            runs.add(launches(limit, fewest, most, barrier));
        } else {
            ExecutorService pool = Executors.newFixedThreadPool(crowd);
            List<Future<List<Long>>> futures = new ArrayList<>();
            for (int i = 0; i < crowd; i++) {
                futures.add(pool.submit(() -> launches(limit, fewest, most, barrier)));
            }
            for (Future<List<Long>> future : futures) {
                runs.add(future.get());
            }
            pool.shutdown();
        }
        long wall = System.nanoTime() - begun;
        StringBuilder answer = new StringBuilder("done " + wall + " " + Math.max(0, cpuTime() - cpuBefore));
        String between = "";
        for (List<Long> samples : runs) {
            answer.append(between);
            samples.forEach(figure -> answer.append(' ').append(figure));
            between = " |";
        }
        return answer.toString();
    }

    // Java tells nothing of its children's time; the kernel does, in ticks.
    private static long cpuTime() {
        var own = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        String stat;
        try {
            stat = Files.readString(Path.of("/proc/self/stat"));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        long ticks = Long.parseLong(fields[13]) + Long.parseLong(fields[14]);
        return own.getProcessCpuTime() + ticks * 10_000_000;
    }
}
