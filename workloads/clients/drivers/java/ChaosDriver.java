import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Drives Kafka's own Java client: commands on standard input, what came of them on standard output, a JSON object a
 * line. workloads/clients/drivers/__init__.py says which there are. Each client has a thread of its own.
 */
public final class ChaosDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration TURN = Duration.ofMillis(20);
    /** What a commit, or asking for one, may take. */
    private static final Duration COMMIT = Duration.ofSeconds(5);
    /** Of deliveries one after the other, as long as one line tells of them. */
    private static final long MOST_NS = 2_000_000;

    private final OutputStream out = new FileOutputStream(FileDescriptor.out);

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // what a client prints is no answer
        new ChaosDriver().serve();
        Runtime.getRuntime().halt(0); // whatever clients still wait for
    }

    private void serve() throws Exception {
        Map<Integer, Client> clients = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = JSON.readTree(line);
            String what = command.get("do").asText();
            if (what.equals("check")) {
                say(event("checked").put("problem", problem(settings(command))));
            } else if (what.equals("open")) {
                int number = command.get("client").asInt();
                Client client = client(command.get("role").asText(), number, settings(command));
                clients.put(number, client);
                Thread thread = new Thread(client, "client-" + number);
                thread.setDaemon(true);
                thread.start();
            } else {
                clients.get(command.get("client").asInt()).commands.add(command);
            }
        }
    }

    private Client client(String role, int number, Properties settings) {
        switch (role) {
            case "producer":
                return new Producer(number, settings);
            case "consumer":
                return new Consumer(number, settings);
            case "member":
                return new Member(number, settings);
            case "transactor":
                return new Transactor(number, settings);
            default:
                throw new IllegalArgumentException(role);
        }
    }

    private static ObjectNode event(String what) {
        return JSON.createObjectNode().put("is", what);
    }

    private synchronized void say(ObjectNode event) {
        try {
            out.write((event + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException gone) {
            Runtime.getRuntime().halt(1); // nobody listens any more
        }
    }

    private static Properties settings(JsonNode command) {
        Properties found = new Properties();
        for (Iterator<Map.Entry<String, JsonNode>> each = command.get("settings").fields(); each.hasNext(); ) {
            Map.Entry<String, JsonNode> setting = each.next();
            found.setProperty(setting.getKey(), setting.getValue().asText());
        }
        return found;
    }

    /** Those that a client of this role has. */
    private static Properties of(Properties given, Collection<String> known) {
        Properties found = new Properties();
        for (String name : given.stringPropertyNames()) {
            if (known.contains(name)) {
                found.setProperty(name, given.getProperty(name));
            }
        }
        return found;
    }

    /** What is wrong with settings, as a sentence; null: nothing. */
    private static String problem(Properties given) {
        for (String name : given.stringPropertyNames()) {
            ConfigDef.ConfigKey key = ProducerConfig.configDef().configKeys().get(name);
            if (key == null) {
                key = ConsumerConfig.configDef().configKeys().get(name);
            }
            if (key == null) {
                return name + ": Kafka's Java client has no such setting";
            }
            try {
                Object value = ConfigDef.parseType(name, given.getProperty(name), key.type);
                if (key.validator != null) {
                    key.validator.ensureValid(name, value);
                }
            } catch (RuntimeException wrong) {
                return name + "=" + given.getProperty(name) + ": " + wrong.getMessage();
            }
        }
        return null;
    }

    /** As the class of the exception says. */
    private static String name(Throwable error) {
        return error.getClass().getSimpleName();
    }

    private static String text(Throwable error) {
        String message = String.valueOf(error.getMessage());
        return message.substring(0, Math.min(500, message.length()));
    }

    private static byte[] bytes(long value) {
        return ByteBuffer.allocate(Long.BYTES).putLong(value).array();
    }

    /** Of records in order: those whose offsets and values count up, as offset, value and how many. */
    private static void runs(List<ConsumerRecord<byte[], byte[]>> records, ArrayNode runs) {
        long offset = 0;
        long value = 0;
        int count = 0;
        for (ConsumerRecord<byte[], byte[]> record : records) {
            long written = ByteBuffer.wrap(record.value()).getLong();
            if (count > 0 && record.offset() == offset + count && written == value + count) {
                count++;
            } else {
                if (count > 0) {
                    runs.addArray().add(offset).add(value).add(count);
                }
                offset = record.offset();
                value = written;
                count = 1;
            }
        }
        if (count > 0) {
            runs.addArray().add(offset).add(value).add(count);
        }
    }

    /** Of a JSON object whose names are partitions. */
    private static Map<Integer, Long> byPartition(JsonNode given) {
        Map<Integer, Long> found = new HashMap<>();
        given.fields().forEachRemaining(each -> found.put(Integer.parseInt(each.getKey()), each.getValue().asLong()));
        return found;
    }

    /** Those that a command names. */
    private static Set<TopicPartition> asked(JsonNode command, String topic) {
        Set<TopicPartition> found = new HashSet<>();
        command.get("partitions").forEach(each -> found.add(new TopicPartition(topic, each.asInt())));
        return found;
    }

    private static Map<TopicPartition, OffsetAndMetadata> places(String topic, Map<Integer, Long> ends) {
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        ends.forEach((partition, end) -> places.put(new TopicPartition(topic, partition), new OffsetAndMetadata(end)));
        return places;
    }

    private static void assign(KafkaConsumer<byte[], byte[]> consumer, String topic, Map<Integer, Long> positions) {
        Map<TopicPartition, Long> places = new HashMap<>();
        positions.forEach((partition, offset) -> places.put(new TopicPartition(topic, partition), offset));
        consumer.assign(places.keySet());
        places.forEach(consumer::seek);
    }

    private abstract class Client implements Runnable {
        final LinkedBlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();
        final int number;
        final Properties settings;

        Client(int number, Properties settings) {
            this.number = number;
            this.settings = settings;
        }

        abstract void open();

        /** Let the client work, for at most about TURN. */
        abstract void turn() throws Exception;

        abstract void carryOut(String what, JsonNode command) throws Exception;

        abstract void close(Duration patience);

        @Override
        public void run() {
            try {
                open();
            } catch (RuntimeException | Error error) {
                error.printStackTrace();
                Throwable cause = error.getCause() == null ? error : error.getCause();
                say(event("failed").put("client", number).put("error", name(cause)).put("says", text(cause)));
                return;
            }
            say(event("opened").put("client", number).put("says", "Java client " + AppInfoParser.getVersion()));
            try {
                while (true) {
                    for (JsonNode command = commands.poll(); command != null; command = commands.poll()) {
                        String what = command.get("do").asText();
                        if (what.equals("close")) {
                            close(Duration.ofMillis((long) (1000 * command.get("seconds").asDouble())));
                            say(event("closed").put("client", number));
                            return;
                        }
                        carryOut(what, command);
                    }
                    turn();
                }
            } catch (Throwable crash) { // a client whose thread fails is one that crashed: the process ends with it
                crash.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }
    }

    private final class Producer extends Client {
        private KafkaProducer<byte[], byte[]> producer;
        private Thread thread;
        private volatile boolean sending;
        private long first;
        private int count;
        private long offset;
        private String error;
        private String stage;
        private String says;
        private long began;
        private long complete;

        Producer(int number, Properties settings) {
            super(number, of(settings, ProducerConfig.configNames()));
        }

        @Override
        void open() {
            thread = Thread.currentThread();
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        }

        @Override
        void carryOut(String what, JsonNode command) {
            switch (what) {
                case "produce":
                    produce(command);
                    break;
                case "flush":
                    producer.flush();
                    tell();
                    say(event("flushed").put("client", number));
                    break;
                default:
                    throw new IllegalArgumentException(what);
            }
        }

        private void produce(JsonNode command) {
            String topic = command.get("topic").asText();
            int partition = command.get("partition").asInt();
            int keys = command.get("keys").asInt();
            long start = command.get("first").asLong();
            long end = start + command.get("count").asInt();
            for (long each = start; each < end; each++) {
                final long value = each;
                byte[] key = keys == 0 ? null : bytes(value % keys);
                sending = true;
                try {
                    producer.send(new ProducerRecord<>(topic, partition, key, bytes(value)), (metadata, failure) -> {
                        if (failure == null) {
                            add(value, metadata.hasOffset() ? metadata.offset() : -1, null, null, null);
                        } else {
                            // What send() refuses, it tells by the callback, from within.
                            boolean atOnce = sending && Thread.currentThread() == thread;
                            add(value, -1, name(failure), atOnce ? "send" : "delivery", text(failure));
                        }
                    });
                } catch (KafkaException refused) {
                    add(value, -1, name(refused), "send", text(refused));
                } finally {
                    sending = false;
                }
            }
        }

        /** Of the client's own thread, or of this one. */
        private synchronized void add(long value, long at, String failure, String when, String why) {
            long now = System.nanoTime();
            long following = offset < 0 ? -1 : offset + count;
            boolean goesOn = count > 0 && value == first + count && at == following && now - began < MOST_NS
                    && java.util.Objects.equals(failure, error) && java.util.Objects.equals(when, stage);
            if (goesOn) {
                count++;
            } else {
                tell();
                first = value;
                count = 1;
                offset = at;
                error = failure;
                stage = when;
                says = why;
                began = now;
            }
            complete = now;
        }

        private synchronized void tell() {
            if (count == 0) {
                return;
            }
            ObjectNode told = event("produced").put("first", first).put("count", count).put("complete", complete);
            if (error == null) {
                told.put("offset", offset);
            } else {
                told.put("error", error).put("stage", stage).put("says", says);
            }
            say(told);
            count = 0;
        }

        @Override
        void turn() throws InterruptedException {
            if (commands.isEmpty()) {
                Thread.sleep(TURN.toMillis() / 4);
            }
            tell();
        }

        @Override
        void close(Duration patience) {
            producer.close(patience);
            tell();
        }
    }

    private final class Consumer extends Client {
        private KafkaConsumer<byte[], byte[]> consumer;
        private String topic = "";
        private boolean assigned;
        private final Map<Integer, Long> next = new HashMap<>();

        Consumer(int number, Properties settings) {
            super(number, of(settings, ConsumerConfig.configNames()));
        }

        @Override
        void open() {
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        void carryOut(String what, JsonNode command) {
            switch (what) {
                case "assign":
                    assign(command);
                    break;
                case "offsets":
                    offsets(command);
                    break;
                default:
                    throw new IllegalArgumentException(what);
            }
        }

        private void assign(JsonNode command) {
            topic = command.get("topic").asText();
            next.clear();
            next.putAll(byPartition(command.get("positions")));
            ChaosDriver.assign(consumer, topic, next);
            assigned = true;
        }

        private void offsets(JsonNode command) {
            long invoke = System.nanoTime();
            Duration patience = Duration.ofMillis((long) (1000 * command.get("seconds").asDouble()));
            Set<TopicPartition> places = asked(command, command.get("topic").asText());
            ObjectNode told = event("offsets").put("id", command.get("id").asInt()).put("invoke", invoke);
            try {
                Map<TopicPartition, Long> found = command.get("which").asText().equals("earliest")
                        ? consumer.beginningOffsets(places, patience)
                        : consumer.endOffsets(places, patience);
                ObjectNode offsets = told.putObject("offsets");
                found.forEach((place, offset) -> offsets.put(String.valueOf(place.partition()), offset));
            } catch (KafkaException error) {
                told.put("error", name(error)).put("says", text(error));
            }
            say(told.put("complete", System.nanoTime()));
        }

        @Override
        void turn() throws InterruptedException {
            if (!assigned) {
                Thread.sleep(TURN.toMillis());
                return;
            }
            long invoke = System.nanoTime();
            ConsumerRecords<byte[], byte[]> records;
            try {
                records = consumer.poll(TURN);
            } catch (InvalidOffsetException wrong) {
                for (TopicPartition place : wrong.partitions()) {
                    stuck(place.partition(), wrong);
                }
                Thread.sleep(TURN.toMillis());
                return;
            } catch (KafkaException error) {
                stuck(null, error);
                Thread.sleep(TURN.toMillis());
                return;
            }
            long complete = System.nanoTime();
            for (TopicPartition place : records.partitions()) {
                read(place.partition(), records.records(place), invoke, complete);
            }
        }

        private void read(int partition, List<ConsumerRecord<byte[], byte[]>> records, long invoke, long complete) {
            ObjectNode told = event("read").put("client", number).put("partition", partition)
                    .put("from", next.get(partition)).put("invoke", invoke).put("complete", complete);
            runs(records, told.putArray("runs"));
            next.put(partition, records.get(records.size() - 1).offset() + 1);
            say(told);
        }

        private void stuck(Integer partition, Exception error) {
            say(event("stuck").put("client", number).put("partition", partition).put("error", name(error))
                    .put("says", text(error)));
        }

        @Override
        void close(Duration patience) {
            consumer.close(patience);
        }
    }

    /** Of a consumer group: as workloads/clients/drivers/members.py has it. */
    private final class Member extends Client implements ConsumerRebalanceListener {
        private KafkaConsumer<byte[], byte[]> consumer;
        private String topic = "";
        private String commit = "";
        private String mode = "";
        private boolean joined;
        private int commits;
        private final Map<Integer, Long> processed = new HashMap<>();

        Member(int number, Properties settings) {
            super(number, of(settings, ConsumerConfig.configNames()));
        }

        @Override
        void open() {
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        void carryOut(String what, JsonNode command) throws Exception {
            switch (what) {
                case "join":
                    topic = command.get("topic").asText();
                    commit = command.get("commit").asText();
                    mode = command.get("mode").asText();
                    tell(member("join", System.nanoTime()));
                    consumer.subscribe(List.of(topic), this);
                    joined = true;
                    break;
                case "pause":
                    tell(member("pause", System.nanoTime()));
                    Thread.sleep((long) (1000 * command.get("seconds").asDouble()));
                    tell(member("resume", System.nanoTime()));
                    break;
                case "committed":
                    answerCommitted(command);
                    break;
                default:
                    throw new IllegalArgumentException(what);
            }
        }

        @Override
        void turn() throws InterruptedException {
            if (!joined) {
                Thread.sleep(TURN.toMillis());
                return;
            }
            long invoke = System.nanoTime();
            ConsumerRecords<byte[], byte[]> records;
            try {
                records = consumer.poll(TURN);
            } catch (KafkaException error) {
                error.printStackTrace();
                Thread.sleep(TURN.toMillis());
                return;
            }
            if (!records.isEmpty()) {
                dealWith(records, invoke);
            }
        }

        private void dealWith(ConsumerRecords<byte[], byte[]> records, long invoke) {
            Map<Integer, Long> ends = new HashMap<>();
            Map<Integer, Long> starts = new HashMap<>();
            for (TopicPartition place : records.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> found = records.records(place);
                int from = 0;
                for (int at = 1; at <= found.size(); at++) { // each stretch without a gap
                    if (at == found.size() || found.get(at).offset() != found.get(at - 1).offset() + 1) {
                        polled(place.partition(), found.subList(from, at), invoke);
                        from = at;
                    }
                }
                starts.put(place.partition(), found.get(0).offset());
                ends.put(place.partition(), found.get(found.size() - 1).offset() + 1);
            }
            if (commit.equals("before")) {
                // What may not be committed is not processed: it would be twice, by whoever has the partition next.
                if (commitSync(ends)) {
                    process(starts, ends);
                }
                return;
            }
            process(starts, ends);
            if (mode.equals("sync")) {
                commitSync(ends);
            } else if (mode.equals("async")) {
                int number = begin(ends);
                consumer.commitAsync(places(topic, ends), (offsets, failure) -> ended(number, failure));
            }
        }

        private void polled(int partition, List<ConsumerRecord<byte[], byte[]>> found, long invoke) {
            ObjectNode told = member("poll", invoke);
            ArrayNode range = told.putObject("ranges").putArray(String.valueOf(partition));
            range.add(found.get(0).offset()).add(found.get(found.size() - 1).offset() + 1);
            runs(found, told.putObject("runs").putArray(String.valueOf(partition)));
            tell(told);
        }

        private void process(Map<Integer, Long> starts, Map<Integer, Long> ends) {
            ObjectNode told = member("process", System.nanoTime());
            ObjectNode ranges = told.putObject("ranges");
            ends.forEach((partition, end) ->
                    ranges.putArray(String.valueOf(partition)).add(starts.get(partition)).add(end));
            processed.putAll(ends);
            tell(told);
        }

        private boolean commitSync(Map<Integer, Long> ends) {
            int number = begin(ends);
            try {
                consumer.commitSync(places(topic, ends), COMMIT);
            } catch (KafkaException failure) {
                ended(number, failure);
                return false;
            }
            ended(number, null);
            return true;
        }

        private int begin(Map<Integer, Long> ends) {
            commits++;
            ObjectNode told = member("commit", System.nanoTime()).put("id", commits);
            ObjectNode offsets = told.putObject("offsets");
            ends.forEach((partition, end) -> offsets.put(String.valueOf(partition), end));
            say(told); // without a completion
            return commits;
        }

        private void ended(int id, Exception failure) {
            ObjectNode told = member("commit", 0).put("id", id);
            told.putNull("invoke");
            if (failure != null) {
                told.put("error", name(failure)).put("says", text(failure));
            }
            tell(told);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            long invoke = System.nanoTime();
            ObjectNode nothing = JSON.createObjectNode();
            if (!given.isEmpty()) {
                try {
                    Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(given), COMMIT);
                    for (TopicPartition place : given) {
                        if (found.get(place) == null) {
                            nothing.put(String.valueOf(place.partition()), 0);
                        }
                    }
                } catch (KafkaException error) { // then nobody can say whether it begins at the start on purpose
                    error.printStackTrace();
                }
            }
            tell(partitions(member("assign", invoke), given));
            if (!nothing.isEmpty()) {
                ObjectNode told = member("reset", System.nanoTime()).put("error", "nothing committed");
                told.set("offsets", nothing);
                tell(told);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            long invoke = System.nanoTime();
            if (commit.equals("after") && mode.equals("async")) {
                Map<Integer, Long> last = new HashMap<>();
                for (TopicPartition place : taken) {
                    if (processed.containsKey(place.partition())) {
                        last.put(place.partition(), processed.get(place.partition()));
                    }
                }
                if (!last.isEmpty()) {
                    commitSync(last);
                }
            }
            taken.forEach(place -> processed.remove(place.partition()));
            tell(partitions(member("revoke", invoke), taken));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> taken) {
            taken.forEach(place -> processed.remove(place.partition()));
            tell(partitions(member("lose", System.nanoTime()), taken));
        }

        private ObjectNode partitions(ObjectNode told, Collection<TopicPartition> places) {
            ArrayNode partitions = told.putArray("partitions");
            places.forEach(place -> partitions.add(place.partition()));
            return told;
        }

        private void answerCommitted(JsonNode command) {
            long invoke = System.nanoTime();
            Set<TopicPartition> places = asked(command, command.get("topic").asText());
            ObjectNode told = event("offsets").put("id", command.get("id").asInt()).put("invoke", invoke);
            try {
                Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(places, COMMIT);
                ObjectNode offsets = told.putObject("offsets");
                for (TopicPartition place : places) {
                    OffsetAndMetadata at = found.get(place);
                    offsets.put(String.valueOf(place.partition()), at == null ? null : (Long) at.offset());
                }
            } catch (KafkaException error) {
                told.put("error", name(error)).put("says", text(error));
            }
            say(told.put("complete", System.nanoTime()));
        }

        private ObjectNode member(String kind, long invoke) {
            ObjectNode told = event("member").put("client", number).put("kind", kind).put("invoke", invoke);
            return told.put("generation", consumer.groupMetadata().generationId());
        }

        private void tell(ObjectNode told) {
            say(told.put("complete", System.nanoTime()));
        }

        @Override
        void close(Duration patience) {
            consumer.close(patience);
        }
    }

    /** As workloads/clients/drivers/transactors.py has it. Settings of its consumer begin with "consumer.". */
    private final class Transactor extends Client {
        private KafkaProducer<byte[], byte[]> producer;
        private KafkaConsumer<byte[], byte[]> consumer;
        private String topic = "";
        private final Map<Integer, Long> positions = new HashMap<>();
        private boolean initialised;

        Transactor(int number, Properties settings) {
            super(number, settings);
        }

        @Override
        void open() {
            Properties ofConsumer = new Properties();
            Properties ofProducer = new Properties();
            for (String name : settings.stringPropertyNames()) {
                if (name.startsWith("consumer.")) {
                    ofConsumer.setProperty(name.substring("consumer.".length()), settings.getProperty(name));
                } else {
                    ofProducer.setProperty(name, settings.getProperty(name));
                }
            }
            producer = new KafkaProducer<>(
                    of(ofProducer, ProducerConfig.configNames()), new ByteArraySerializer(), new ByteArraySerializer());
            consumer = new KafkaConsumer<>(of(ofConsumer, ConsumerConfig.configNames()),
                    new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        void turn() throws InterruptedException {
            if (commands.isEmpty()) {
                Thread.sleep(TURN.toMillis() / 10);
            }
        }

        @Override
        void carryOut(String what, JsonNode command) {
            switch (what) {
                case "start":
                    start(command);
                    break;
                case "poll":
                    poll(command);
                    break;
                case "txn":
                    txn(command);
                    break;
                default:
                    throw new IllegalArgumentException(what);
            }
        }

        private void start(JsonNode command) {
            topic = command.get("topic").asText();
            ObjectNode told = begun("started", command);
            try {
                if (!initialised) {
                    producer.initTransactions();
                    initialised = true;
                }
                if (command.get("positions").isNull()) {
                    Set<TopicPartition> asked = asked(command, topic);
                    Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(asked, COMMIT);
                    asked.forEach(place -> positions.put(
                            place.partition(), found.get(place) == null ? 0 : found.get(place).offset()));
                } else {
                    positions.putAll(byPartition(command.get("positions")));
                }
                goBack();
            } catch (KafkaException | IllegalStateException error) {
                told.put("error", name(error)).put("says", text(error));
            }
            end(told);
        }

        /** To where the last committed transaction left off. */
        private void goBack() {
            if (!positions.isEmpty()) {
                ChaosDriver.assign(consumer, topic, positions);
            }
        }

        private void poll(JsonNode command) {
            ObjectNode told = begun("polled", command);
            try {
                records(command, told.putArray("records"), new HashMap<>());
            } catch (KafkaException error) {
                told.put("error", name(error)).put("says", text(error));
            }
            end(told);
        }

        private void txn(JsonNode command) {
            ObjectNode told = begun("txn", command);
            ObjectNode sent = JSON.createObjectNode();
            ArrayNode polled = told.putArray("polled");
            Map<Integer, Long> ends = new HashMap<>();
            List<Exception> failures = java.util.Collections.synchronizedList(new ArrayList<>());
            String outcome = "fail";
            String stage = "begin";
            try {
                producer.beginTransaction();
                int position = 0;
                for (JsonNode operation : command.get("operations")) {
                    stage = operation.get(0).asText();
                    if (stage.equals("send")) {
                        send(operation.get(1).asInt(), operation.get(2).asLong(), sent, failures);
                    } else {
                        records(command, polled.addArray().add(position).addArray(), ends);
                    }
                    position++;
                }
                stage = "flush";
                producer.flush();
                if (!failures.isEmpty()) {
                    throw new KafkaException(failures.get(0));
                }
                if (!command.get("offsets").isNull()) {
                    ends.putAll(byPartition(command.get("offsets")));
                }
                if (command.get("end").asText().equals("commit")) {
                    stage = "offsets";
                    if (!ends.isEmpty()) {
                        producer.sendOffsetsToTransaction(places(topic, ends), consumer.groupMetadata());
                    }
                    stage = "commit";
                    producer.commitTransaction();
                    outcome = "ok";
                } else {
                    stage = "abort";
                    producer.abortTransaction();
                }
            } catch (KafkaException | IllegalStateException failure) {
                Throwable why = failures.isEmpty() || failure.getCause() == null ? failure : failure.getCause();
                told.put("error", name(why)).put("says", text(why));
                outcome = stage.equals("commit") ? "info" : "fail"; // before that it may not be committed, ever
                if (!stage.equals("commit") && !stage.equals("abort")) {
                    told.put("aborted", hasAborted());
                }
            }
            if (outcome.equals("ok")) {
                positions.putAll(ends);
            } else if (outcome.equals("fail")) {
                goBack();
            }
            synchronized (sent) {
                told.set("sent", sent.deepCopy());
            }
            end(told.put("outcome", outcome));
        }

        private void send(int partition, long value, ObjectNode sent, List<Exception> failures) {
            producer.send(new ProducerRecord<>(topic, partition, null, bytes(value)), (metadata, failure) -> {
                if (failure != null) {
                    failures.add(failure);
                    return;
                }
                synchronized (sent) {
                    sent.put(String.valueOf(value), metadata.offset());
                }
            });
        }

        private void records(JsonNode command, ArrayNode found, Map<Integer, Long> ends) {
            Duration patience = Duration.ofMillis((long) (1000 * command.get("seconds").asDouble()));
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(patience)) {
                found.addArray().add(record.partition()).add(record.offset())
                        .add(ByteBuffer.wrap(record.value()).getLong());
                ends.put(record.partition(), record.offset() + 1);
            }
        }

        private boolean hasAborted() {
            try {
                producer.abortTransaction();
                return true;
            } catch (KafkaException | IllegalStateException error) {
                error.printStackTrace();
                return false;
            }
        }

        private ObjectNode begun(String what, JsonNode command) {
            return event(what).put("client", number).put("id", command.get("id").asInt())
                    .put("invoke", System.nanoTime());
        }

        private void end(ObjectNode told) {
            say(told.put("complete", System.nanoTime()));
        }

        @Override
        void close(Duration patience) {
            producer.close(patience);
            consumer.close(patience);
        }
    }
}
