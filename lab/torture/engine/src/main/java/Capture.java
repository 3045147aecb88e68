import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

/**
 * Runs Debezium's embedded engine, one capture after the other in one process, as lines on stdin ask:
 *   start PROPERTIES FOLDER ROTATE KILL   writes each record as one line to FOLDER/TOPIC/TOPIC+0+OFFSET.jsonl, a new
 *                                         file after ROTATE records; KILL > 0: after so many records this process
 *                                         ends itself with signal 9, before their offsets are stored
 *   stop                                  closes the engine in the ordinary way
 * Each command is answered by one line on stdout: STARTED, STOPPED, or ENDED and why.
 */
public class Capture {
    static final class Topic {
        long next;
        long inFile;
        Writer writer;
    }

    private final Map<String, Topic> topics = new TreeMap<>();
    private final Path out;
    private final long rotate;
    private final long kill;
    private long written;
    private volatile boolean stopping;
    private DebeziumEngine<ChangeEvent<String, String>> engine;
    private final CountDownLatch finished = new CountDownLatch(1);

    Capture(Path out, long rotate, long kill) {
        this.out = out;
        this.rotate = rotate;
        this.kill = kill;
    }

    /** The next offset of a topic is found in the files of earlier captures; half a line of a killed one is cut. */
    private Topic open(String name) throws IOException {
        Topic topic = topics.get(name);
        if (topic != null) return topic;
        topic = new Topic();
        Path folder = out.resolve(name), last = null;
        Files.createDirectories(folder);
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.jsonl")) {
            for (Path file : files)
                if (last == null || file.getFileName().compareTo(last.getFileName()) > 0) last = file;
        }
        if (last != null) {
            String file = last.getFileName().toString();
            byte[] bytes = Files.readAllBytes(last);
            int lines = 0, end = 0;
            for (int i = 0; i < bytes.length; i++) if (bytes[i] == '\n') { lines++; end = i + 1; }
            if (end < bytes.length) Files.write(last, Arrays.copyOf(bytes, end));
            topic.next = Long.parseLong(file.substring(file.lastIndexOf('+') + 1, file.length() - 6)) + lines;
        }
        topics.put(name, topic);
        return topic;
    }

    private static String quoted(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') made.append('\\').append(c);
            else if (c < 0x20) made.append(String.format("\\u%04x", (int) c));
            else made.append(c);
        }
        return made.append('"').toString();
    }

    private static String json(Object converted) {
        return converted == null ? "null" : converted.toString();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void write(ChangeEvent<String, String> event) throws IOException {
        String name = event.destination();
        Topic topic = open(name);
        if (topic.writer == null) {
            Path file = out.resolve(name).resolve(String.format("%s+0+%010d.jsonl", name, topic.next));
            OutputStream stream = Files.newOutputStream(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            topic.writer = new BufferedWriter(new OutputStreamWriter(stream, StandardCharsets.UTF_8), 1 << 16);
            topic.inFile = 0;
        }
        StringJoiner headers = new StringJoiner(",", "[", "]");
        List<Header> given = (List) event.headers();
        if (given != null)
            for (Header header : given)
                headers.add("{\"key\":" + quoted(header.getKey()) + ",\"value\":" + json(header.getValue()) + "}");
        topic.writer.write("{\"topic\":" + quoted(name) + ",\"partition\":0,\"offset\":" + topic.next + ",\"key\":"
                + json(event.key()) + ",\"value\":" + json(event.value()) + ",\"headers\":" + headers + "}\n");
        topic.next++;
        topic.inFile++;
        written++;
        if (topic.inFile >= rotate) { topic.writer.close(); topic.writer = null; }
    }

    private void flush() throws IOException {
        for (Topic topic : topics.values()) if (topic.writer != null) topic.writer.flush();
    }

    private void take(List<ChangeEvent<String, String>> events,
                      DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
        try {
            for (ChangeEvent<String, String> event : events) {
                write(event);
                if (kill > 0 && written >= kill) {
                    flush();
                    new ProcessBuilder("kill", "-9", Long.toString(ProcessHandle.current().pid())).start();
                    Thread.sleep(60000);
                }
            }
            flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        for (ChangeEvent<String, String> event : events) committer.markProcessed(event);
        committer.markBatchFinished();
    }

    private void start(Path file) throws IOException {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) { properties.load(reader); }
        engine = DebeziumEngine.create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
                .using(properties)
                .using((ok, message, error) -> {
                    if (error != null) error.printStackTrace();
                    if (!stopping) System.out.println("ENDED " + ok + " " + String.valueOf(message).replace('\n', ' '));
                })
                .notifying((events, committer) -> take(events, committer))
                .build();
        Thread thread = new Thread(() -> { engine.run(); finished.countDown(); });
        thread.setDaemon(true);
        thread.start();
    }

    private void stop() throws Exception {
        stopping = true;
        for (int tries = 0; ; tries++) {
            try { engine.close(); break; }
            catch (IllegalStateException starting) {
                if (finished.getCount() == 0 || tries > 300) break;
                Thread.sleep(200);
            }
        }
        finished.await(60, TimeUnit.SECONDS);
        for (Topic topic : topics.values()) if (topic.writer != null) topic.writer.close();
    }

    public static void main(String[] arguments) throws Exception {
        Capture capture = null;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                capture = new Capture(Path.of(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]));
                capture.start(Path.of(words[1]));
                System.out.println("STARTED");
            } else if (words[0].equals("stop")) {
                capture.stop();
                System.out.println("STOPPED");
            }
        }
        System.exit(0);
    }
}
