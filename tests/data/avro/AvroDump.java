import io.debezium.embedded.Connect;
import io.debezium.engine.*;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.header.Header;
import java.io.*; import java.nio.charset.StandardCharsets; import java.nio.file.*; import java.util.*; import java.util.concurrent.*;

/** One line a record: key and value as JsonConverter (with schemas) and as AvroConverter (base64) write them. */
public class AvroDump {
    static String b64(byte[] b) { return b == null ? "null" : "\"" + Base64.getEncoder().encodeToString(b) + "\""; }
    static String raw(byte[] b) { return b == null ? "null" : new String(b, StandardCharsets.UTF_8); }
    public static void main(String[] a) throws Exception {
        Properties p = new Properties();
        try (Reader r = Files.newBufferedReader(Path.of(a[0]))) { p.load(r); }
        Map<String, Object> reg = new HashMap<>();
        reg.put("apicurio.registry.url", a[2]); reg.put("apicurio.registry.auto-register", true);
        reg.put("apicurio.registry.as-confluent", true); reg.put("apicurio.registry.use-id", "contentId");
        reg.put("apicurio.registry.find-latest", false);
        Converter ka = new io.apicurio.registry.utils.converter.AvroConverter<Object>(), va = new io.apicurio.registry.utils.converter.AvroConverter<Object>();
        ka.configure(reg, true); va.configure(reg, false);
        JsonConverter kj = new JsonConverter(), vj = new JsonConverter(), hj = new JsonConverter();
        kj.configure(Map.of("schemas.enable", "true"), true); vj.configure(Map.of("schemas.enable", "true"), false);
        hj.configure(Map.of("schemas.enable", "false", "converter.type", "header"));
        Writer w = new BufferedWriter(Files.newBufferedWriter(Path.of(a[1]), StandardOpenOption.CREATE, StandardOpenOption.APPEND));
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class).using(p)
            .using((ok, msg, err) -> { System.err.println("COMPLETED " + ok + " " + msg); if (err != null) err.printStackTrace(); })
            .notifying((List<ChangeEvent<SourceRecord, SourceRecord>> records, DebeziumEngine.RecordCommitter<ChangeEvent<SourceRecord, SourceRecord>> c) -> {
                try { for (ChangeEvent<SourceRecord, SourceRecord> e : records) {
                    SourceRecord s = e.value(); String t = s.topic();
                    StringBuilder h = new StringBuilder("[");
                    for (Header x : s.headers()) { if (h.length() > 1) h.append(','); h.append("{\"key\":\"" + x.key() + "\",\"value\":" + raw(hj.fromConnectHeader(t, x.key(), x.schema(), x.value())) + "}"); }
                    w.write("{\"topic\":\"" + t + "\",\"key\":" + raw(kj.fromConnectData(t, s.keySchema(), s.key())) + ",\"value\":" + (s.value() == null ? "null" : raw(vj.fromConnectData(t, s.valueSchema(), s.value())))
                        + ",\"key_avro\":" + (s.key() == null ? "null" : b64(ka.fromConnectData(t, s.keySchema(), s.key()))) + ",\"value_avro\":" + (s.value() == null ? "null" : b64(va.fromConnectData(t, s.valueSchema(), s.value()))) + ",\"headers\":" + h + "]}\n");
                } w.flush(); } catch (IOException x) { throw new UncheckedIOException(x); }
                for (var e : records) c.markProcessed(e); c.markBatchFinished(); }).build();
        ExecutorService ex = Executors.newSingleThreadExecutor(); ex.execute(engine);
        String stop = System.getProperty("stopFile");
        while (!Files.exists(Path.of(stop))) Thread.sleep(200);
        engine.close(); w.close(); System.exit(0);
    }
}
