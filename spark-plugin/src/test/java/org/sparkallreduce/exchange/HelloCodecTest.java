// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.io.Output;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.Backend;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Schedule;

class HelloCodecTest {
  private final HelloCodec codec = new HelloCodec();

  @Test
  void messagesAreAsLongAsTheDocumentOfTheProtocolSays() throws IOException {
    int handle = Base64.getDecoder().decode(codec.encode(typical(Optional.empty(), 256))).length;
    Optional<Held> held = Optional.of(new Held(new UUID(3, 4), 0, 99));
    int lease = Base64.getDecoder().decode(codec.encode(typical(held, 0))).length;
    Pattern said =
        Pattern.compile("has (\\d+) bytes, (\\d+) characters.*? (\\d+) bytes and (\\d+) ch");
    Matcher document = said.matcher(Files.readString(Path.of("../docs/protocol.md")));
    assertThat(document.find()).isTrue();
    assertThat(List.of(document.group(1), document.group(2), document.group(3), document.group(4)))
        .map(Integer::valueOf)
        .containsExactly(handle, (handle + 2) / 3 * 4, lease, (lease + 2) / 3 * 4);
  }

  /** As that document describes it. */
  private static Hello typical(Optional<Held> held, int handleBytes) {
    return new Hello(
        Hello.PROTOCOL,
        0,
        2,
        new UUID(1, 2),
        "12",
        "192.168.10.11",
        new HostIdentity(new UUID(5, 6).toString(), 11, 12),
        new ProcessIdentity(1000, 77, 13),
        Optional.of("0"),
        "x".repeat(53),
        1 << 20,
        1 << 16,
        Schedule.AUTO,
        AutoTable.packed().fingerprint(),
        GpuOffer.none(Backend.AUTO, false),
        held,
        ByteBuffer.wrap(new byte[handleBytes]).asReadOnlyBuffer());
  }

  @Test
  void whatOneRankEncodesAnotherDecodes() {
    Hello hello = Hellos.of(3, 4);

    assertThat(new HelloCodec().decode(3, codec.encode(hello))).isEqualTo(hello);
  }

  @Test
  void aMessageIsSmallEnoughForManyRanks() {
    assertThat(codec.encode(Hellos.of(0, 16)).length()).isLessThan(1024);
  }

  @Test
  void aTruncatedMessageNamesTheRank() {
    byte[] whole = Base64.getDecoder().decode(codec.encode(Hellos.of(1, 2)));
    for (int length = 0; length < whole.length; length++) {
      String cut = Base64.getEncoder().encodeToString(Arrays.copyOf(whole, length));
      assertThatThrownBy(() -> codec.decode(1, cut))
          .isInstanceOf(AllReduceException.Setup.class)
          .hasMessageContaining("rank 1 does not decode");
    }
  }

  @Test
  void everyFlippedBitIsFound() {
    byte[] whole = Base64.getDecoder().decode(codec.encode(Hellos.of(1, 2)));
    for (int bit = 0; bit < 8 * whole.length; bit++) {
      byte[] flipped = whole.clone();
      flipped[bit / 8] ^= (byte) (1 << (bit % 8));
      String message = Base64.getEncoder().encodeToString(flipped);
      assertThatThrownBy(() -> codec.decode(1, message))
          .as("bit %d", bit)
          .isInstanceOf(AllReduceException.Setup.class)
          .hasMessageContaining("rank 1 does not decode");
    }
  }

  @Test
  void damagedMessagesAreRefusedAndDoNothingElse() {
    byte[] whole = Base64.getDecoder().decode(codec.encode(Hellos.of(1, 2)));
    var random = new Random(42);
    for (int round = 0; round < 20_000; round++) {
      byte[] damaged = whole.clone();
      for (int flips = 1 + random.nextInt(3); flips > 0; flips--) {
        damaged[random.nextInt(damaged.length)] ^= (byte) (1 << random.nextInt(8));
      }
      if (Arrays.equals(damaged, whole)) {
        continue; // the same bit twice
      }
      String message = Base64.getEncoder().encodeToString(damaged);
      assertThatThrownBy(() -> codec.decode(1, message))
          .isInstanceOf(AllReduceException.Setup.class)
          .hasMessageContaining("rank 1 does not decode");
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "AAAA", "not base64!", "AQ=="})
  void textThatIsNoMessageIsRefused(String text) {
    assertThatThrownBy(() -> codec.decode(0, text))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("rank 0 does not decode");
  }

  @Test
  void anOverlongMessageIsRefusedBeforeItIsDecoded() {
    assertThatThrownBy(() -> codec.decode(2, "A".repeat(1 << 20)))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("1048576 characters");
  }

  /** What an attacker looks for on a class path: a class that does something when it is read. */
  public static final class Gadget implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final AtomicInteger READ = new AtomicInteger();

    public Gadget() {
      READ.incrementAndGet();
    }

    @SuppressWarnings("unused") // Java serialization calls it
    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
      in.defaultReadObject();
      READ.incrementAndGet();
    }
  }

  private static byte[] kryoBytes(Consumer<Kryo> registrations) {
    var kryo = new Kryo();
    kryo.setRegistrationRequired(false);
    registrations.accept(kryo);
    var output = new Output(256, -1);
    kryo.writeClassAndObject(output, new Gadget());
    return output.toBytes();
  }

  private static byte[] javaBytes() throws IOException {
    var bytes = new ByteArrayOutputStream();
    try (var out = new ObjectOutputStream(bytes)) {
      out.writeObject(new Gadget());
    }
    return bytes.toByteArray();
  }

  @Test
  void aClassThatIsNotRegisteredIsNeitherLoadedNorInstantiated() throws IOException {
    byte[] named = kryoBytes(_ -> {});
    byte[] numbered = kryoBytes(kryo -> kryo.register(Gadget.class));
    byte[] numberedBeyond = kryoBytes(kryo -> kryo.register(Gadget.class, 1_000));
    byte[] serialized = javaBytes();
    byte[] noSuchClass = named.clone();
    noSuchClass[3] ^= 1; // a letter of the name: looking for it would say that it is not found
    int before = Gadget.READ.get();
    for (byte[] message : List.of(named, noSuchClass, numbered, numberedBeyond, serialized)) {
      assertThatThrownBy(() -> codec.decode(0, Base64.getEncoder().encodeToString(message)))
          .isInstanceOf(AllReduceException.Setup.class)
          .hasMessageContaining("rank 0 does not decode")
          .hasMessageNotContaining("Unable to find class");
    }
    assertThatThrownBy(() -> codec.decode(0, Base64.getEncoder().encodeToString(named)))
        .hasMessageContaining("it names a class");
    assertThat(Gadget.READ).hasValue(before);
  }

  @Test
  void bytesBehindTheMessageAreRefused() {
    byte[] whole = Base64.getDecoder().decode(codec.encode(Hellos.of(1, 2)));
    byte[] longer = Arrays.copyOf(whole, whole.length + 1);

    assertThatThrownBy(() -> codec.decode(1, Base64.getEncoder().encodeToString(longer)))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("bytes follow its end");
  }
}
