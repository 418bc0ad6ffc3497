// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.KryoException;
import com.esotericsoftware.kryo.Registration;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import com.esotericsoftware.kryo.util.DefaultClassResolver;
import com.esotericsoftware.kryo.util.MapReferenceResolver;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Optional;
import java.util.UUID;
import java.util.zip.CRC32C;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Backend;
import org.sparkallreduce.ProcessIdentity;
import org.sparkallreduce.Schedule;

/**
 * Turns a {@link Hello} into the text that allGather carries, and back. Kryo with this one class
 * registered, no references, every length bounded before anything is allocated: a message can
 * neither name a class nor make us allocate. A checksum at its end finds damage. Thread safe.
 */
public final class HelloCodec {
  static final int MAX_MESSAGE_BYTES = 4096;
  static final int MAX_TEXT_BYTES = 256;
  static final int MAX_HANDLE_BYTES = 1024;
  static final int MAX_OBSTACLE_BYTES = 3 * GpuOffer.MOST_LETTERS; // in UTF-8

  /** Kryo itself would load a class that a message names, only to refuse it then. */
  private static final class NoNames extends DefaultClassResolver {
    @Override
    protected Registration readName(Input input) {
      throw new KryoException("it names a class");
    }
  }

  private final Kryo kryo = new Kryo(new NoNames(), new MapReferenceResolver());

  public HelloCodec() {
    kryo.setRegistrationRequired(true);
    kryo.setReferences(false);
    kryo.register(Hello.class, new HelloSerializer());
  }

  public synchronized String encode(Hello hello) {
    var output = new Output(MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES);
    kryo.writeClassAndObject(output, hello);
    output.writeInt(checksum(output.getBuffer(), output.position()));
    return Base64.getEncoder().encodeToString(output.toBytes());
  }

  /**
   * Reads one message.
   *
   * @param rank whose message it is, for the error
   * @throws AllReduceException.Setup if it does not decode to a Hello of this protocol
   */
  public synchronized Hello decode(int rank, String message) {
    try {
      if (message.length() > MAX_MESSAGE_BYTES * 4 / 3 + 4) {
        throw new KryoException("it is %d characters long".formatted(message.length()));
      }
      var input = new Input(Base64.getDecoder().decode(message));
      // Kryo knows texts and numbers too, and would allocate what such a text claims to need.
      Registration type = kryo.readClass(input);
      if (type == null || type.getType() != Hello.class) {
        throw new KryoException("it holds something else");
      }
      Hello hello = kryo.readObject(input, Hello.class);
      int checksum = checksum(input.getBuffer(), input.position());
      if (input.readInt() != checksum) {
        throw new KryoException("it is damaged: its checksum is not that of its content");
      }
      if (input.position() != input.limit()) {
        throw new KryoException("bytes follow its end");
      }
      return hello;
    } catch (RuntimeException e) {
      throw new AllReduceException.Setup(
          "The exchange message of rank %d does not decode (%s). Use one build of spark-allreduce"
                  .formatted(rank, e.getMessage())
              + " on all executors, and call nothing else on the barrier context before the"
              + " communicator is open.",
          e);
    }
  }

  /** What finds damage in fields that could have any value: a name, a process id, a sequence. */
  private static int checksum(byte[] bytes, int length) {
    var checksum = new CRC32C();
    checksum.update(bytes, 0, length);
    return (int) checksum.getValue();
  }

  private static final class HelloSerializer extends Serializer<Hello> {
    @Override
    public void write(Kryo kryo, Output output, Hello hello) {
      output.writeInt(hello.protocol());
      output.writeInt(hello.rank());
      output.writeInt(hello.worldSize());
      output.writeLong(hello.session().getMostSignificantBits());
      output.writeLong(hello.session().getLeastSignificantBits());
      writeText(output, hello.executorId());
      writeText(output, hello.host());
      writeText(output, hello.hostIdentity().bootId());
      output.writeLong(hello.hostIdentity().ipcNamespace());
      output.writeLong(hello.hostIdentity().sharedMemoryDevice());
      output.writeLong(hello.process().pid());
      output.writeLong(hello.process().startTime());
      output.writeLong(hello.process().pidNamespace());
      writeText(output, hello.device().orElse(""));
      writeText(output, hello.build());
      output.writeLong(hello.arenaBytes());
      output.writeLong(hello.stagingBytes());
      output.writeInt(hello.schedule().code());
      writeText(output, hello.autoTable());
      write(output, hello.gpu());
      output.writeBoolean(hello.held().isPresent());
      hello
          .held()
          .ifPresent(
              held -> {
                output.writeLong(held.opened().getMostSignificantBits());
                output.writeLong(held.opened().getLeastSignificantBits());
                output.writeInt(held.member());
                output.writeLong(held.sequence());
              });
      var handle = new byte[hello.handle().remaining()];
      hello.handle().duplicate().get(handle);
      writeBytes(output, handle, MAX_HANDLE_BYTES);
    }

    @Override
    public Hello read(Kryo kryo, Input input, Class<Hello> type) {
      int protocol = input.readInt();
      if (protocol != Hello.PROTOCOL) {
        throw new KryoException(
            "it is of protocol %d, ours is %d".formatted(protocol, Hello.PROTOCOL));
      }
      return new Hello(
          protocol,
          input.readInt(),
          input.readInt(),
          new UUID(input.readLong(), input.readLong()),
          readText(input),
          readText(input),
          new HostIdentity(readText(input), input.readLong(), input.readLong()),
          new ProcessIdentity(input.readLong(), input.readLong(), input.readLong()),
          Optional.of(readText(input)).filter(device -> !device.isEmpty()),
          readText(input),
          input.readLong(),
          input.readLong(),
          schedule(input.readInt()),
          readText(input),
          gpu(input),
          held(input),
          ByteBuffer.wrap(readBytes(input, MAX_HANDLE_BYTES)).asReadOnlyBuffer());
    }

    private static void write(Output output, GpuOffer gpu) {
      writeText(output, gpu.setting().name());
      output.writeBoolean(gpu.shared());
      writeText(output, gpu.build());
      writeText(output, gpu.uuid());
      writeText(output, gpu.device());
      writeBytes(output, gpu.obstacle().getBytes(StandardCharsets.UTF_8), MAX_OBSTACLE_BYTES);
    }

    private static GpuOffer gpu(Input input) {
      return new GpuOffer(
          backend(readText(input)),
          input.readBoolean(),
          readText(input),
          readText(input),
          readText(input),
          new String(readBytes(input, MAX_OBSTACLE_BYTES), StandardCharsets.UTF_8));
    }

    private static Backend backend(String name) {
      for (Backend backend : Backend.values()) {
        if (backend.name().equals(name)) {
          return backend;
        }
      }
      throw new KryoException("it names an unknown backend");
    }

    private static Optional<Held> held(Input input) {
      if (!input.readBoolean()) {
        return Optional.empty();
      }
      UUID opened = new UUID(input.readLong(), input.readLong());
      return Optional.of(new Held(opened, input.readInt(), input.readLong()));
    }

    private static Schedule schedule(int code) {
      for (Schedule schedule : Schedule.values()) {
        if (schedule.code() == code) {
          return schedule;
        }
      }
      throw new KryoException("it names an unknown schedule, " + code);
    }

    private static void writeText(Output output, String text) {
      writeBytes(output, text.getBytes(StandardCharsets.UTF_8), MAX_TEXT_BYTES);
    }

    private static String readText(Input input) {
      return new String(readBytes(input, MAX_TEXT_BYTES), StandardCharsets.UTF_8);
    }

    private static void writeBytes(Output output, byte[] bytes, int most) {
      if (bytes.length > most) {
        throw new KryoException("%d bytes do not fit, %d do".formatted(bytes.length, most));
      }
      output.writeInt(bytes.length);
      output.writeBytes(bytes);
    }

    private static byte[] readBytes(Input input, int most) {
      int length = input.readInt();
      if (length < 0 || length > most) {
        throw new KryoException("a field claims %d bytes, %d are allowed".formatted(length, most));
      }
      return input.readBytes(length);
    }
  }
}
