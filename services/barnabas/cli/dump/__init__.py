"""Reading the files of a log as Kafka's DumpLogSegments does: ours and Kafka's own, which have the same format."""
