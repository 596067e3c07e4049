import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** Kafka Streams and `Delivery`, by the commands of program.py: a pass is an application of its own.
 *
 *  <pre>Streams SERVERS ENDPOINT TABLES FOLDER</pre> */
public final class Streams {
  private static final LongAdder DONE = new LongAdder();

  private static final class Deliver extends ContextualProcessor<ByteBuffer, ByteBuffer, Void, Void> {
    private final Delivery delivery;
    private byte[] session;

    Deliver(Delivery delivery) {
      this.delivery = delivery;
    }

    @Override
    public void process(Record<ByteBuffer, ByteBuffer> record) {
      RecordMetadata place = context().recordMetadata().get();
      try {
        // A processor is one partition's.
        if (session == null) session = Delivery.session(place.topic(), place.partition());
        delivery.packet(record.value(), session, place.offset());
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
      DONE.increment();
    }
  }

  private static KafkaStreams started(String[] arguments, Delivery.Tables tables, String topic, String threads) {
    Properties properties = Consumer.properties(arguments[0]);
    properties.remove("key.deserializer");
    properties.remove("value.deserializer");
    properties.remove("enable.auto.commit");
    properties.put("application.id", "bench-" + UUID.randomUUID());
    properties.put("state.dir", arguments[3]);
    properties.put("num.stream.threads", threads);
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(topic, Consumed.with(Serdes.ByteBuffer(), Serdes.ByteBuffer()))
        .process(
            () -> {
              try {
                return new Deliver(new Delivery(tables, arguments[1]));
              } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
              }
            });
    KafkaStreams streams = new KafkaStreams(builder.build(), properties);
    streams.start();
    return streams;
  }

  public static void main(String[] arguments) throws Exception {
    Delivery.Tables tables = new Delivery.Tables(arguments[2]);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    KafkaStreams streams = null;
    String[] order = {};
    long end = 0, turn = 1;
    System.out.println("ready");
    for (String line; (line = commands.readLine()) != null; ) {
      String[] words = line.split(" ");
      String answer = words[0];
      if (words[0].equals("go")) {
        order = words;
        end = DONE.sum() + Long.parseLong(words[3]);
        streams = started(arguments, tables, words[1], words[2]);
      } else if (words[0].equals("look")) {
        long done = DONE.sum();
        long records = streams == null ? 0 : Long.parseLong(order[3]);
        if (streams != null && done >= end && order[4].equals("0")) {
          streams.close();
          streams = started(arguments, tables, order[1], order[2]);
          end = done + records;
          turn++;
        }
        boolean flows = done > end - records && done < end;
        answer = (flows ? turn : 0) + " " + done + " " + System.currentTimeMillis() / 1e3;
      } else {
        streams.close();
        streams = null;
        turn++;
      }
      System.out.println(answer);
    }
  }
}
