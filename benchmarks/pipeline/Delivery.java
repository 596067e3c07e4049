import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.DatagramChannel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;

/** Decodes, matches, frames and sends packets, as a Java program would by hand: a hash map from the
 *  stock to ascending prices, at each of which other hosts are reached; headers made beforehand; a
 *  datagram a frame. One object a thread. */
final class Delivery {
  /** What all threads share, from the file that the benchmark writes. */
  static final class Tables {
    final byte[][][] templates;
    final long[] keys;
    final int[] slots;
    final int[][] prices;
    final int[][] leaves;
    final int mask;

    Tables(String path) throws IOException {
      try (DataInputStream in =
          new DataInputStream(new BufferedInputStream(new FileInputStream(path), 1 << 20))) {
        templates = new byte[in.readInt()][][];
        for (int leaf = 0; leaf < templates.length; leaf++) {
          templates[leaf] = new byte[in.readInt()][];
          for (int part = 0; part < templates[leaf].length; part++) {
            templates[leaf][part] = in.readNBytes(in.readInt());
          }
        }
        int stocks = in.readInt();
        int size = Integer.highestOneBit(stocks) << 3;
        mask = size - 1;
        keys = new long[size];
        slots = new int[size];
        Arrays.fill(slots, -1);
        prices = new int[stocks][];
        leaves = new int[stocks][];
        for (int stock = 0; stock < stocks; stock++) {
          long key = in.readLong();
          int steps = in.readInt();
          prices[stock] = new int[steps];
          leaves[stock] = new int[steps + 1];
          for (int step = 0; step < steps; step++) prices[stock][step] = in.readInt();
          for (int step = 1; step <= steps; step++) leaves[stock][step] = in.readInt();
          int at = place(key);
          while (slots[at] >= 0) at = at + 1 & mask;
          keys[at] = key;
          slots[at] = stock;
        }
      }
    }

    private int place(long key) {
      long mixed = key * 0x9E3779B97F4A7C15L;
      return (int) (mixed >>> 40) & mask;
    }

    /** The leaf of an order; 0 where nobody asks for it. */
    int leaf(long key, int price) {
      int at = place(key);
      while (slots[at] >= 0) {
        if (keys[at] == key) {
          int[] steps = prices[slots[at]];
          int low = 0, high = steps.length;
          while (low < high) {
            int middle = low + high >>> 1;
            if (steps[middle] < price) low = middle + 1;
            else high = middle;
          }
          return leaves[slots[at]][low];
        }
        at = at + 1 & mask;
      }
      return 0;
    }
  }

  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
  private static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
  private static final VarHandle SHORT =
      MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.BIG_ENDIAN);
  private static final int MOST = 8192;

  private final Tables tables;
  private final DatagramChannel channel;
  private final byte[] frame = new byte[1 << 16];
  private final ByteBuffer direct = ByteBuffer.allocateDirect(1 << 16);
  private final int[] found = new int[MOST], start = new int[MOST], index = new int[MOST];
  long frames;

  Delivery(Tables tables, String endpoint) throws IOException {
    this.tables = tables;
    int colon = endpoint.lastIndexOf(':');
    channel = DatagramChannel.open();
    channel.setOption(java.net.StandardSocketOptions.SO_SNDBUF, 4 << 20);
    channel.connect(
        new InetSocketAddress(
            endpoint.substring(0, colon), Integer.parseInt(endpoint.substring(colon + 1))));
  }

  /** One packet, in an array behind the buffer; session: ten bytes. */
  void packet(ByteBuffer value, byte[] session, long offset) throws IOException {
    byte[] data = value.array();
    int at = value.arrayOffset() + value.position();
    int messages = (short) SHORT.get(data, at + 18) & 0xFFFF;
    at += 20;
    int matched = 0;
    for (int message = 0; message < messages; message++) {
      int length = (short) SHORT.get(data, at) & 0xFFFF;
      if (data[at + 2] == 'A') {
        int leaf = tables.leaf((long) LONG.get(data, at + 26), (int) INT.get(data, at + 34));
        if (leaf != 0) {
          found[matched] = leaf;
          start[matched] = at;
          index[matched++] = message;
        }
      }
      at += 2 + length;
    }
    for (int first = 0; first < matched; first++) {
      int leaf = found[first];
      if (leaf == 0) continue;
      // Messages of a packet for the same hosts go together, in their order.
      int end = 20, together = 0;
      for (int other = first; other < matched; other++) {
        if (found[other] != leaf) continue;
        int size = 2 + ((short) SHORT.get(data, start[other]) & 0xFFFF);
        System.arraycopy(data, start[other], frame, 1024 + end, size);
        end += size;
        together++;
        found[other] = 0;
      }
      System.arraycopy(session, 0, frame, 1024, 10);
      LONG.set(frame, 1024 + 10, offset << 26 | (long) index[first] << 13);
      SHORT.set(frame, 1024 + 18, (short) together);
      for (byte[] template : tables.templates[leaf]) send(template, end);
    }
  }

  private void send(byte[] template, int payload) throws IOException {
    int begin = 1024 - template.length, ip = 1024 - 28;
    System.arraycopy(template, 0, frame, begin, template.length);
    SHORT.set(frame, ip + 2, (short) (28 + payload));
    SHORT.set(frame, ip + 24, (short) (8 + payload));
    long sum = 0;
    for (int word = 0; word < 20; word += 4) sum += (int) INT.get(frame, ip + word) & 0xFFFFFFFFL;
    SHORT.set(frame, ip + 10, (short) ~folded(sum));
    // UDP's pseudo header: addresses, protocol, length.
    sum = ((int) INT.get(frame, ip + 12) & 0xFFFFFFFFL) + ((int) INT.get(frame, ip + 16) & 0xFFFFFFFFL);
    sum += 17 + 8 + payload;
    int end = 1024 + payload, place = ip + 20;
    for (; place + 4 <= end; place += 4) sum += (int) INT.get(frame, place) & 0xFFFFFFFFL;
    if (place + 2 <= end) {
      sum += (short) SHORT.get(frame, place) & 0xFFFF;
      place += 2;
    }
    if (place < end) sum += (frame[place] & 0xFF) << 8;
    int check = ~folded(sum) & 0xFFFF;
    SHORT.set(frame, ip + 26, (short) (check == 0 ? 0xFFFF : check));
    direct.clear();
    direct.put(frame, begin, end - begin).flip();
    while (channel.write(direct) == 0) Thread.onSpinWait();
    frames++;
  }

  private static int folded(long sum) {
    while (sum >>> 16 != 0) sum = (sum & 0xFFFF) + (sum >>> 16);
    return (int) sum;
  }

  /** The session of a partition of a topic without an id: six digits for the topic, four for the partition. */
  static byte[] session(String topic, int partition) throws NoSuchAlgorithmException {
    byte[] hash =
        MessageDigest.getInstance("SHA-256").digest((topic + "\0\0" + "0").getBytes(StandardCharsets.UTF_8));
    String name = new BigInteger(1, Arrays.copyOf(hash, 8)).mod(BigInteger.valueOf(36).pow(6)).toString(36);
    String text = "0".repeat(6 - name.length()) + name;
    String number = Integer.toString(partition, 36);
    text += "0".repeat(4 - number.length()) + number;
    return text.toUpperCase().getBytes(StandardCharsets.US_ASCII);
  }
}
