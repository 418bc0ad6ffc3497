// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/** What a class logs, until it is closed. */
final class LoggedMessages implements AutoCloseable {
  private final Logger logger;
  private final Appender appender = new Appender();

  private static final class Appender extends AbstractAppender {
    private final List<String> warnings = new CopyOnWriteArrayList<>();

    Appender() {
      super("messages of a test", null, null, true, Property.EMPTY_ARRAY);
    }

    @Override
    public void append(LogEvent event) {
      if (event.getLevel().equals(Level.WARN)) {
        warnings.add(event.getMessage().getFormattedMessage());
      }
    }
  }

  LoggedMessages(Class<?> of) {
    logger = (Logger) LogManager.getLogger(of);
    appender.start();
    logger.addAppender(appender);
  }

  List<String> warnings() {
    return List.copyOf(appender.warnings);
  }

  @Override
  public void close() {
    logger.removeAppender(appender);
  }
}
