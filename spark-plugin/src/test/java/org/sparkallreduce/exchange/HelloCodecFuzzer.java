// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import org.sparkallreduce.AllReduceException;

/**
 * The fuzz target for the decoder of exchange messages; bin/fuzz runs it under Jazzer. Whatever a
 * peer sends is either refused with the rank's name, or is a message that can be sent again.
 */
public final class HelloCodecFuzzer {
  private static final HelloCodec CODEC = new HelloCodec();
  private static final int RANK = 3;

  private HelloCodecFuzzer() {}

  /** Under the name that Jazzer looks for: the bytes below Base64, and as text as they are. */
  public static void fuzzerTestOneInput(byte[] data) {
    decode(Base64.getEncoder().encodeToString(data));
    decode(new String(data, StandardCharsets.ISO_8859_1));
  }

  /** Writes messages of today's build into a folder, for the fuzzer to begin with. */
  public static void main(String[] folder) throws IOException {
    for (int rank = 0; rank < 4; rank++) {
      byte[] bytes = Base64.getDecoder().decode(CODEC.encode(Hellos.of(rank, 4)));
      Files.write(Path.of(folder[0], "hello-" + rank), bytes);
    }
  }

  private static void decode(String message) {
    Hello hello;
    try {
      hello = CODEC.decode(RANK, message);
    } catch (AllReduceException.Setup e) {
      require(e.getMessage() != null && e.getMessage().contains("of rank 3 does not decode"));
      return;
    }
    require(hello.handle().remaining() <= HelloCodec.MAX_HANDLE_BYTES);
    require(!hello.describe().isEmpty());
    try {
      Agreement.check(List.of(hello), 1);
    } catch (AllReduceException.Setup e) {
      require(e.getMessage() != null);
    }
    // What is no UTF-8 in a text has become another character, of up to three bytes.
    boolean lossy = hello.toString().indexOf('\ufffd') >= 0;
    require(lossy || CODEC.decode(RANK, CODEC.encode(hello)).equals(hello));
  }

  private static void require(boolean condition) {
    if (!condition) {
      throw new AssertionError("the decoder broke its promise");
    }
  }
}
