import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The rows of Kafka's own Java client library, of whichever version is on the class path.
 *
 * Arguments: --bootstrap ADDRESS --prefix PREFIX. Prints a JSON line per capability.
 */
public class ClientTable {
    static final int COUNT = 10_000;
    static final int PARTITIONS = 4;
    static final long PATIENCE_MS = 60_000;
    static String bootstrap;
    static String prefix;
    static final Set<String> passed = new HashSet<>();

    public static void main(String[] args) {
        for (int i = 0; i + 1 < args.length; i += 2) {
            switch (args[i]) {
                case "--bootstrap" -> bootstrap = args[i + 1];
                case "--prefix" -> prefix = args[i + 1];
                default -> throw new IllegalArgumentException(args[i]);
            }
        }
        row("create", null, ClientTable::create);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            row(codec, null, () -> codec(codec));
        }
        Seen seen = new Seen();
        row("group", null, () -> group(seen));
        row("lag", "group", () -> checkLag(COUNT - seen.size()));
        row("resume", "group", () -> {
            int before = seen.size();
            readRest("g", seen);
            return (seen.size() - before) + " more records after the restart";
        });
        row("replay", "group", () -> readRest("g2", new Seen()));
        row("reset", "group", ClientTable::reset);
        System.exit(0);
    }

    interface Step {
        String run() throws Exception;
    }

    static void row(String capability, String needs, Step step) {
        try {
            if (needs != null && !passed.contains(needs)) {
                throw new AssertionError("builds on " + needs + ", which did not pass");
            }
            say(capability, "pass", step.run());
            passed.add(capability);
        } catch (Throwable error) {
            error.printStackTrace();
            say(capability, "fail", error.toString());
        }
    }

    static void say(String capability, String result, String detail) {
        String quoted = detail.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ").replace("\t", " ");
        System.out.printf("{\"capability\":\"%s\",\"result\":\"%s\",\"detail\":\"%s\"}%n", capability, result, quoted);
    }

    static String keyOf(int n) {
        return "user-" + n % 100;
    }

    static String valueOf(int n) {
        return n + ":" + ("clicked on advert " + n % 7 + "; ").repeat(3);
    }

    /** The records that consumers of one topic processed, in the order in which they did. */
    static final class Seen {
        private final Map<TopicPartition, Set<Long>> places = new HashMap<>();
        private final List<ConsumerRecord<String, String>> records = new ArrayList<>();

        /** Leaves the second half of each partition out: the members of a group stop in the middle. */
        volatile boolean halfOnly;

        /** Takes a record and says whether it counts as processed. */
        synchronized boolean add(ConsumerRecord<String, String> record) {
            if (halfOnly && record.offset() >= COUNT / 2 / PARTITIONS) {
                return false;
            }
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            if (!places.computeIfAbsent(partition, p -> new HashSet<>()).add(record.offset())) {
                throw new AssertionError("record " + partition + ":" + record.offset() + " was processed twice");
            }
            int n = numberOf(record);
            if (!record.key().equals(keyOf(n)) || !record.value().equals(valueOf(n))) {
                throw new AssertionError("record " + partition + ":" + record.offset() + " is not what was sent");
            }
            return records.add(record);
        }

        static int numberOf(ConsumerRecord<String, String> record) {
            return Integer.parseInt(record.value().substring(0, record.value().indexOf(':')));
        }

        synchronized int size() {
            return records.size();
        }

        synchronized Map<TopicPartition, OffsetAndMetadata> positions(Collection<TopicPartition> of) {
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            places.forEach((partition, offsets) -> {
                if (of.contains(partition)) {
                    long last = offsets.stream().mapToLong(Long::longValue).max().orElseThrow();
                    positions.put(partition, new OffsetAndMetadata(last + 1));
                }
            });
            return positions;
        }

        synchronized void checkComplete() {
            Set<Integer> numbers = new HashSet<>();
            Map<String, Integer> last = new HashMap<>();
            Map<String, Integer> homes = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                int n = numberOf(record);
                numbers.add(n);
                Integer home = homes.putIfAbsent(record.key(), record.partition());
                Integer before = last.put(record.key(), n);
                if (home != null && home != record.partition()) {
                    throw new AssertionError("key " + record.key() + " is in two partitions");
                }
                if (before != null && n <= before) {
                    throw new AssertionError("key " + record.key() + ": record " + n + " came after " + before);
                }
            }
            if (numbers.size() != COUNT || records.size() != COUNT) {
                throw new AssertionError(records.size() + " records, " + numbers.size() + " different ones, of " + COUNT);
            }
        }
    }

    static void waitFor(String what, BooleanSupplier condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("waited " + PATIENCE_MS + " ms for " + what);
            }
            Thread.sleep(20);
        }
    }

    static Properties config() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    static String create() throws Exception {
        try (Admin admin = Admin.create(config())) {
            String topic = prefix + "-create";
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            if (partitions != 3) {
                throw new AssertionError(partitions + " partitions instead of 3");
            }
        }
        return "";
    }

    static void produce(String topic, String codec) throws Exception {
        Properties config = config();
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "5");
        config.put("compression.type", codec);
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (int n = 0; n < COUNT; n++) {
                producer.send(new ProducerRecord<>(topic, keyOf(n), valueOf(n)), (metadata, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    }
                });
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Properties config = config();
        if (group != null) {
            config.put("group.id", group);
        }
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        return new KafkaConsumer<>(config);
    }

    static int read(KafkaConsumer<String, String> consumer, Seen seen) {
        int got = 0;
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
            got += seen.add(record) ? 1 : 0;
        }
        return got;
    }

    static void readAll(KafkaConsumer<String, String> consumer, Seen seen) throws Exception {
        // One poll more that is empty: a record twice would come then.
        waitFor("all records", () -> read(consumer, seen) == 0 && seen.size() >= COUNT);
        seen.checkComplete();
    }

    static String codec(String codec) throws Exception {
        String topic = prefix + "-" + codec;
        produce(topic, codec);
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            List<TopicPartition> partitions = partitions(topic, 3);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            readAll(consumer, new Seen());
        }
        return "";
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int p = 0; p < count; p++) {
            partitions.add(new TopicPartition(topic, p));
        }
        return partitions;
    }

    /** A member of the group: reads until told to stop, commits what it processed, leaves with the other. */
    static final class Member extends Thread {
        private final Seen seen;
        private final CyclicBarrier together;
        volatile int got;
        volatile int assigned;
        volatile boolean stop;
        volatile Throwable error;

        Member(Seen seen, CyclicBarrier together) {
            this.seen = seen;
            this.together = together;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> consumer = consumer(prefix + "-g")) {
                consumer.subscribe(List.of(prefix + "-group"));
                while (!stop) {
                    got += read(consumer, seen);
                    assigned = consumer.assignment().size();
                }
                consumer.commitSync(seen.positions(consumer.assignment()));
                together.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
            } catch (Throwable failure) {
                error = failure;
            }
        }
    }

    static String group(Seen seen) throws Exception {
        CyclicBarrier together = new CyclicBarrier(2);
        seen.halfOnly = true;
        List<Member> members = List.of(new Member(seen, together), new Member(seen, together));
        BooleanSupplier failed = () -> members.stream().anyMatch(m -> m.error != null);
        try {
            waitFor("two partitions for each member",
                    () -> failed.getAsBoolean() || members.stream().allMatch(m -> m.assigned == PARTITIONS / 2));
            produce(prefix + "-group", "none");
            waitFor("half of the records", () -> failed.getAsBoolean()
                    || seen.size() >= COUNT / 2 && members.stream().allMatch(m -> m.got > 0));
        } finally {
            members.forEach(m -> m.stop = true);
        }
        for (Member member : members) {
            member.join(PATIENCE_MS);
            if (member.error != null) {
                throw new AssertionError(member.error);
            }
        }
        seen.halfOnly = false;
        return Arrays.asList(members.get(0).got, members.get(1).got) + " records by two members";
    }

    static String readRest(String group, Seen seen) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(prefix + "-" + group)) {
            consumer.subscribe(List.of(prefix + "-group"));
            readAll(consumer, seen);
            consumer.commitSync(seen.positions(partitions(prefix + "-group", PARTITIONS)));
        }
        return "";
    }

    static String checkLag(long expected) throws Exception {
        try (Admin admin = Admin.create(config())) {
            Map<TopicPartition, OffsetAndMetadata> committed =
                    admin.listConsumerGroupOffsets(prefix + "-g").partitionsToOffsetAndMetadata().get();
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            partitions(prefix + "-group", PARTITIONS).forEach(p -> ends.put(p, OffsetSpec.latest()));
            long lag = 0;
            for (var end : admin.listOffsets(ends).all().get().entrySet()) {
                lag += end.getValue().offset() - committed.get(end.getKey()).offset();
            }
            if (lag != expected) {
                throw new AssertionError("lag is " + lag + " and should be " + expected);
            }
            return "lag " + lag;
        }
    }

    static String reset() throws Exception {
        try (Admin admin = Admin.create(config())) {
            Map<TopicPartition, OffsetAndMetadata> to = new HashMap<>();
            partitions(prefix + "-group", PARTITIONS).forEach(p -> to.put(p, new OffsetAndMetadata(0)));
            admin.alterConsumerGroupOffsets(prefix + "-g", to).all().get();
        }
        checkLag(COUNT);
        return readRest("g", new Seen());
    }
}
