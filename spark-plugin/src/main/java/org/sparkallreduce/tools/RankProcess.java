// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.UncheckedIOException;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.AutoTable;
import org.sparkallreduce.Settings;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.RankIdentity;
import org.sparkallreduce.ffm.NativeLibrary;

/**
 * One rank as a process of its own. It reads messages from standard input and writes its own to
 * standard output. When its input ends, the tool has ended, and so does it, wherever it is.
 */
final class RankProcess {
  private final ObjectOutputStream out;
  private final BlockingQueue<Message> inbox = new LinkedBlockingQueue<>();

  private RankProcess(ObjectOutputStream out) {
    this.out = out;
  }

  public static void main(String[] arguments) throws IOException {
    var out = new ObjectOutputStream(new FileOutputStream(FileDescriptor.out));
    out.flush();
    System.setOut(System.err); // whatever else is printed must not come between the messages
    var process = new RankProcess(out);
    Thread.ofPlatform().daemon().name("messages").start(process::read);
    process.run();
  }

  private void read() {
    try (var in = new ObjectInputStream(System.in)) {
      while (true) {
        inbox.add((Message) in.readObject());
      }
    } catch (EOFException e) {
      Runtime.getRuntime().halt(0);
    } catch (IOException | ClassNotFoundException e) {
      System.err.println("The tool sent something else than a message: " + e);
      Runtime.getRuntime().halt(1);
    }
  }

  private void run() {
    try {
      measure((Message.Start) inbox.take());
      tell(new Message.Done());
    } catch (AllReduceException e) {
      tell(new Message.Failed(e.getMessage()));
    } catch (Exception | LinkageError | OutOfMemoryError e) {
      tell(new Message.Failed(e.toString()));
    }
  }

  private void measure(Message.Start start) {
    Settings settings =
        Settings.from(start.settings())
            .withAutoTable(AutoTable.parse("the tool's", start.autoTable()));
    NativeLibrary library = NativeLibrary.load(settings.nativeDirectory());
    String host = RunInfo.hostName();
    var identity =
        new RankIdentity(
            start.rank(),
            start.ranks(),
            start.session(),
            Integer.toString(start.rank()),
            host,
            Optional.empty());
    try (var communicator = Communicator.open(library, settings, identity, this::exchange)) {
      long pid = ProcessHandle.current().pid();
      tell(new Message.Ready(new RankInfo(start.rank(), pid, host, library.buildInfo())));
      new RankMeasurement(communicator, start.job())
          .run(
              measured -> {
                tell(new Message.Result(measured));
                Message.Next _ = (Message.Next) answer();
              });
      communicator.barrier(); // nobody leaves while a slower rank is still in its last call
    }
  }

  private String[] exchange(String word) {
    tell(new Message.Word(word));
    return ((Message.Words) answer()).texts().toArray(String[]::new);
  }

  private Message answer() {
    try {
      return inbox.take();
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts this thread", e);
    }
  }

  private void tell(Message message) {
    try {
      out.writeObject(message);
      out.flush();
      out.reset();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
