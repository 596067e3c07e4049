import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteBufferDeserializer;

/** Kafka's Java consumer and `Delivery`, a thread a partition, by the commands of program.py.
 *
 *  <pre>Consumer SERVERS ENDPOINT TABLES</pre> */
public final class Consumer {
  private static volatile boolean halting;

  private static final class Reader extends Thread {
    final TopicPartition place;
    final boolean once;
    final Properties properties;
    final Delivery delivery;
    final byte[] session;
    final long until;
    volatile long records;

    Reader(String topic, int partition, long until, boolean once, Properties p, Delivery d)
        throws Exception {
      place = new TopicPartition(topic, partition);
      this.until = until;
      this.once = once;
      properties = p;
      delivery = d;
      session = Delivery.session(topic, partition);
    }

    @Override
    public void run() {
      try (KafkaConsumer<ByteBuffer, ByteBuffer> consumer = new KafkaConsumer<>(properties)) {
        consumer.assign(List.of(place));
        consumer.seek(place, 0);
        long done = 0, at = 0;
        while (!halting) {
          for (ConsumerRecord<ByteBuffer, ByteBuffer> record :
              consumer.poll(Duration.ofMillis(100)).records(place)) {
            delivery.packet(record.value(), session, record.offset());
            at = record.offset() + 1;
            done++;
          }
          records = done;
          if (at >= until) {
            if (once) return;
            consumer.seek(place, 0);
            at = 0;
          }
        }
      } catch (Exception error) {
        error.printStackTrace();
        System.exit(1);
      }
    }
  }

  static Properties properties(String servers) {
    Properties found = new Properties();
    found.put("bootstrap.servers", servers);
    found.put("key.deserializer", ByteBufferDeserializer.class.getName());
    found.put("value.deserializer", ByteBufferDeserializer.class.getName());
    found.put("enable.auto.commit", "false");
    found.put("auto.offset.reset", "earliest");
    found.put("max.poll.records", "16384");
    found.put("max.partition.fetch.bytes", "4194304");
    found.put("receive.buffer.bytes", "4194304");
    return found;
  }

  public static void main(String[] arguments) throws Exception {
    Properties properties = properties(arguments[0]);
    Delivery.Tables tables = new Delivery.Tables(arguments[2]);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    Reader[] readers = {};
    long before = 0;
    System.out.println("ready");
    for (String line; (line = commands.readLine()) != null; ) {
      String[] words = line.split(" ");
      String answer = words[0];
      if (words[0].equals("go")) {
        halting = false;
        int partitions = Integer.parseInt(words[2]);
        long records = Long.parseLong(words[3]);
        readers = new Reader[partitions];
        for (int p = 0; p < partitions; p++) {
          long until = records / partitions + (p < records % partitions ? 1 : 0);
          Delivery delivery = new Delivery(tables, arguments[1]);
          readers[p] = new Reader(words[1], p, until, words[4].equals("1"), properties, delivery);
          readers[p].start();
        }
      } else if (words[0].equals("look")) {
        long done = 0;
        for (Reader reader : readers) done += reader.records;
        boolean flows = done > 0;
        done += before;
        answer = (flows ? 1 : 0) + " " + done + " " + System.currentTimeMillis() / 1e3;
      } else {
        halting = true;
        for (Reader reader : readers) {
          reader.join();
          before += reader.records;
        }
        readers = new Reader[0];
      }
      System.out.println(answer);
    }
  }
}
