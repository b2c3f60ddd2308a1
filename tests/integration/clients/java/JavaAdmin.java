import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What programs do with the Java admin client. */
final class JavaAdmin {
    private final String bootstrap;

    JavaAdmin(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** A scenario that is given an admin client. */
    private interface With {
        void run(Admin admin) throws Exception;
    }

    void addTo(Map<String, JavaClient.Scenario> scenarios) {
        Map<String, With> all = new TreeMap<>();
        all.put("admin_topics", this::topics);
        all.put("admin_topics_that_cannot_be", this::topicsThatCannotBe);
        all.put("admin_topics_by_id", this::topicsById);
        all.put("admin_topics_described_in_pages", this::topicsDescribedInPages);
        all.put("admin_configs", this::configs);
        all.put("admin_broker_configs", this::brokerConfigs);
        all.put("admin_config_resources", this::configResources);
        all.put("admin_offsets_of_every_kind", this::offsetsOfEveryKind);
        all.put("admin_delete_records", this::deleteRecords);
        all.put("admin_groups", this::groups);
        all.put("admin_group_offsets", this::groupOffsets);
        all.put("admin_members_removed", this::membersRemoved);
        all.put("admin_log_dirs", this::logDirs);
        all.put("admin_producers", this::producers);
        all.put("admin_cluster", this::cluster);
        all.put("admin_features", this::features);
        all.put("admin_quorum", this::quorum);
        all.put("admin_client_quotas", this::clientQuotas);
        all.put("admin_reassignments", this::reassignments);
        all.forEach((name, scenario) -> scenarios.put(name, () -> {
            try (Admin admin = admin(bootstrap)) {
                scenario.run(admin);
            }
        }));
    }

    private static Admin admin(String bootstrap) {
        return Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", "20000", "request.timeout.ms", "20000", "enable.metrics.push", "false"));
    }

    static void createTopic(String bootstrap, String topic, int partitions, Map<String, String> configs) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            create(admin, topic, partitions, configs);
        }
    }

    private static void create(Admin admin, String topic, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
    }

    private void topics(Admin admin) throws Exception {
        NewTopic asked = new NewTopic("java-admin", Optional.empty(), Optional.empty()).configs(Map.of("retention.ms", "77000"));
        admin.createTopics(List.of(asked), new CreateTopicsOptions().validateOnly(true)).all().get();
        Scenarios.check(!admin.listTopics().names().get().contains("java-admin"), "validateOnly made the topic");
        CreateTopicsResult created = admin.createTopics(List.of(asked));
        Scenarios.equal(1, created.replicationFactor("java-admin").get(), "replication factor");
        Scenarios.equal("77000", created.config("java-admin").get().get("retention.ms").value(), "answered config");
        Scenarios.check(!created.topicId("java-admin").get().equals(Uuid.ZERO_UUID), "topic id");
        int before = created.numPartitions("java-admin").get();
        admin.createPartitions(Map.of("java-admin", NewPartitions.increaseTo(before + 2))).all().get();
        TopicDescription description = admin.describeTopics(List.of("java-admin")).allTopicNames().get().get("java-admin");
        Scenarios.equal(before + 2, description.partitions().size(), "partitions");
        Scenarios.equal(List.of(1), ids(description), "the first partition's replicas");
        Scenarios.fails(InvalidPartitionsException.class,
            admin.createPartitions(Map.of("java-admin", NewPartitions.increaseTo(1))).all()::get);
        Scenarios.fails(TopicExistsException.class, admin.createTopics(List.of(asked)).all()::get);
        admin.createTopics(List.of(new NewTopic("java-manual", Map.of(0, List.of(1), 1, List.of(1))))).all().get();
        admin.deleteTopics(List.of("java-admin", "java-manual")).all().get();
        Scenarios.fails(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of("java-admin")).allTopicNames()::get);
    }

    private static List<Integer> ids(TopicDescription description) {
        return description.partitions().get(0).replicas().stream().map(node -> node.id()).collect(Collectors.toList());
    }

    private void topicsThatCannotBe(Admin admin) throws Exception {
        Map<NewTopic, Class<? extends Throwable>> bad = Map.of(
            new NewTopic("two words", 1, (short) 1), InvalidTopicException.class,
            new NewTopic("java-bad-a", 0, (short) 1), InvalidPartitionsException.class,
            new NewTopic("java-bad-b", 1, (short) 3), InvalidReplicationFactorException.class,
            new NewTopic("java-bad-c", 1, (short) 1).configs(Map.of("no.such", "1")), InvalidConfigurationException.class,
            new NewTopic("java-bad-d", 1, (short) 1).configs(Map.of("retention.ms", "soon")), InvalidConfigurationException.class);
        for (Map.Entry<NewTopic, Class<? extends Throwable>> one : bad.entrySet()) {
            Throwable error = Scenarios.fails(one.getValue(), admin.createTopics(List.of(one.getKey())).all()::get);
            Scenarios.check(error.getMessage().length() > 10, "says nothing: " + error);
        }
        Scenarios.fails(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of("java-never-was")).all()::get);
    }

    private void topicsById(Admin admin) throws Exception {
        Uuid id = admin.createTopics(List.of(new NewTopic("java-by-id", 1, (short) 1))).topicId("java-by-id").get();
        TopicCollection byId = TopicCollection.ofTopicIds(List.of(id));
        Scenarios.equal("java-by-id", admin.describeTopics(byId).allTopicIds().get().get(id).name(), "name");
        admin.deleteTopics(byId).all().get();
        Scenarios.fails(UnknownTopicIdException.class, admin.deleteTopics(byId).all()::get);
        Scenarios.fails(UnknownTopicIdException.class, admin.describeTopics(byId).allTopicIds()::get);
    }

    private void topicsDescribedInPages(Admin admin) throws Exception {
        create(admin, "java-pages-a", 7, Map.of());
        create(admin, "java-pages-b", 5, Map.of());
        Map<String, TopicDescription> found = admin.describeTopics(
            List.of("java-pages-a", "java-pages-b"), new DescribeTopicsOptions().partitionSizeLimitPerResponse(3))
            .allTopicNames().get();
        Scenarios.equal(7, found.get("java-pages-a").partitions().size(), "partitions");
        Scenarios.equal(5, found.get("java-pages-b").partitions().size(), "partitions");
    }

    private static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static Map<String, ConfigEntry> described(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true))
            .all().get().get(resource).entries().stream().collect(Collectors.toMap(ConfigEntry::name, entry -> entry));
    }

    private void configs(Admin admin) throws Exception {
        create(admin, "java-configs", 1, Map.of("cleanup.policy", "compact"));
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "java-configs");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            op("cleanup.policy", "delete", AlterConfigOp.OpType.APPEND),
            op("retention.ms", "60000", AlterConfigOp.OpType.SET)))).all().get();
        Map<String, ConfigEntry> entries = described(admin, topic);
        Scenarios.equal("compact,delete", entries.get("cleanup.policy").value(), "appended");
        ConfigEntry retention = entries.get("retention.ms");
        Scenarios.equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, retention.source(), "source");
        Scenarios.equal(ConfigEntry.ConfigType.LONG, retention.type(), "type");
        Scenarios.equal("retention.ms", retention.synonyms().get(0).name(), "first synonym");
        Scenarios.check(retention.documentation().length() > 20, "documentation");
        Scenarios.check(entries.get("segment.bytes").isDefault(), "a default");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            op("cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT),
            op("retention.ms", "", AlterConfigOp.OpType.DELETE)))).all().get();
        entries = described(admin, topic);
        Scenarios.equal("delete", entries.get("cleanup.policy").value(), "subtracted");
        Scenarios.equal("604800000", entries.get("retention.ms").value(), "the default again");
        Scenarios.fails(InvalidConfigurationException.class, admin.incrementalAlterConfigs(
            Map.of(topic, List.of(op("segment.bytes", "-1", AlterConfigOp.OpType.SET)))).all()::get);
        Scenarios.fails(UnknownTopicOrPartitionException.class, admin.describeConfigs(
            List.of(new ConfigResource(ConfigResource.Type.TOPIC, "java-no-topic"))).all()::get);
    }

    private void brokerConfigs(Admin admin) throws Exception {
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource one = new ConfigResource(ConfigResource.Type.BROKER, "1");
        admin.incrementalAlterConfigs(Map.of(
            all, List.of(op("log.cleaner.threads", "2", AlterConfigOp.OpType.SET)),
            one, List.of(op("log.cleaner.threads", "1", AlterConfigOp.OpType.SET)))).all().get();
        ConfigEntry threads = described(admin, one).get("log.cleaner.threads");
        Scenarios.equal("1", threads.value(), "of this broker");
        Scenarios.equal(
            List.of("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "DEFAULT_CONFIG"),
            threads.synonyms().stream().map(synonym -> synonym.source().name()).collect(Collectors.toList()), "sources");
        admin.incrementalAlterConfigs(Map.of(
            all, List.of(op("log.cleaner.threads", "", AlterConfigOp.OpType.DELETE)),
            one, List.of(op("log.cleaner.threads", "", AlterConfigOp.OpType.DELETE)))).all().get();
        Scenarios.check(described(admin, one).get("log.cleaner.threads").isDefault(), "deleted");
    }

    private void configResources(Admin admin) throws Exception {
        create(admin, "java-resources", 1, Map.of());
        Collection<ConfigResource> found = admin.listConfigResources(
            Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER),
            new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get();
        Scenarios.check(found.contains(new ConfigResource(ConfigResource.Type.TOPIC, "java-resources")), "the topic");
        Scenarios.check(found.contains(new ConfigResource(ConfigResource.Type.BROKER, "1")), "the broker");
    }

    private void send(String topic, String id, long... timestamps) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "client.id", id, "enable.metrics.push", "false"), new StringSerializer(), new StringSerializer())) {
            for (long timestamp : timestamps) {
                producer.send(new ProducerRecord<>(topic, 0, timestamp, "key", "at " + timestamp)).get();
            }
        }
    }

    private static ListOffsetsResultInfo offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private void offsetsOfEveryKind(Admin admin) throws Exception {
        send("java-offsets", "p", 1000, 5000, 3000);
        TopicPartition partition = new TopicPartition("java-offsets", 0);
        Scenarios.equal(0L, offset(admin, partition, OffsetSpec.earliest()).offset(), "earliest");
        Scenarios.equal(3L, offset(admin, partition, OffsetSpec.latest()).offset(), "latest");
        Scenarios.equal(1L, offset(admin, partition, OffsetSpec.maxTimestamp()).offset(), "largest timestamp");
        Scenarios.equal(1L, offset(admin, partition, OffsetSpec.forTimestamp(2000)).offset(), "timestamp");
        Scenarios.equal(-1L, offset(admin, partition, OffsetSpec.forTimestamp(9000)).offset(), "in the future");
        Scenarios.equal(0L, offset(admin, partition, OffsetSpec.earliestLocal()).offset(), "earliest local");
        Scenarios.equal(-1L, offset(admin, partition, OffsetSpec.latestTiered()).offset(), "tiered");
    }

    private void deleteRecords(Admin admin) throws Exception {
        send("java-delete", "p", 1, 2, 3, 4, 5);
        TopicPartition partition = new TopicPartition("java-delete", 0);
        Scenarios.equal(2L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(2)))
            .lowWatermarks().get(partition).get().lowWatermark(), "low watermark");
        Scenarios.equal(2L, offset(admin, partition, OffsetSpec.earliest()).offset(), "earliest");
        Scenarios.fails(OffsetOutOfRangeException.class,
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6))).all()::get);
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all().get();
        Scenarios.equal(5L, offset(admin, partition, OffsetSpec.earliest()).offset(), "everything gone");
    }

    /** A member that was given the topic's only partition; the caller closes it. */
    private KafkaConsumer<String, String> member(String group, String topic, String... instance) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "client.id", "java-member", "auto.offset.reset", "earliest",
            "enable.metrics.push", "false"));
        if (instance.length > 0) {
            settings.put("group.instance.id", instance[0]);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (consumer.assignment().isEmpty()) {
            consumer.poll(java.time.Duration.ofMillis(50));
            Scenarios.check(System.nanoTime() < deadline, "no partition within 20 s");
        }
        return consumer;
    }

    private void groups(Admin admin) throws Exception {
        create(admin, "java-groups", 1, Map.of());
        try (KafkaConsumer<String, String> consumer = member("java-groups", "java-groups")) {
            ConsumerGroupDescription group = admin.describeConsumerGroups(List.of("java-groups")).all().get().get("java-groups");
            Scenarios.equal(GroupState.STABLE, group.groupState(), "state");
            Scenarios.equal("range", group.partitionAssignor(), "assignor");
            Scenarios.equal(1, group.coordinator().id(), "coordinator");
            Scenarios.equal(1, group.members().size(), "members");
            Scenarios.equal("java-member", group.members().iterator().next().clientId(), "client id");
            Scenarios.equal(Set.of(new TopicPartition("java-groups", 0)),
                group.members().iterator().next().assignment().topicPartitions(), "assignment");
            List<String> listed = admin.listGroups().all().get().stream().map(GroupListing::groupId).collect(Collectors.toList());
            Scenarios.check(listed.contains("java-groups"), "listed");
            Scenarios.fails(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of("java-groups")).all()::get);
        }
        admin.describeClassicGroups(List.of("java-groups")).all().get();
        admin.deleteConsumerGroups(List.of("java-groups")).all().get();
        Scenarios.fails(GroupIdNotFoundException.class, admin.deleteConsumerGroups(List.of("java-groups")).all()::get);
    }

    private void groupOffsets(Admin admin) throws Exception {
        create(admin, "java-group-offsets", 2, Map.of());
        TopicPartition zero = new TopicPartition("java-group-offsets", 0);
        TopicPartition one = new TopicPartition("java-group-offsets", 1);
        String group = "java-group-offsets";
        admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(7, Optional.empty(), "note"), one, new OffsetAndMetadata(9))).all().get();
        Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Scenarios.equal(7L, found.get(zero).offset(), "offset");
        Scenarios.equal("note", found.get(zero).metadata(), "metadata");
        admin.deleteConsumerGroupOffsets(group, Set.of(one)).all().get();
        found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Scenarios.equal(Set.of(zero), found.keySet(), "what is left");
        try (KafkaConsumer<String, String> consumer = member(group, "java-group-offsets")) {
            Scenarios.fails(GroupSubscribedToTopicException.class, admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all()::get);
        }
    }

    private void membersRemoved(Admin admin) throws Exception {
        create(admin, "java-removed", 1, Map.of());
        KafkaConsumer<String, String> consumer = member("java-removed", "java-removed", "steady");
        consumer.close(); // A static member stays in the group.
        Scenarios.equal(1, members(admin, "java-removed"), "members after it went");
        admin.removeMembersFromConsumerGroup("java-removed",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("steady")))).all().get();
        Scenarios.equal(0, members(admin, "java-removed"), "members after it was removed");
    }

    private static int members(Admin admin, String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size();
    }

    private void logDirs(Admin admin) throws Exception {
        send("java-log-dirs", "p", 1, 2);
        Map<String, LogDirDescription> dirs = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        Scenarios.equal(1, dirs.size(), "directories");
        LogDirDescription dir = dirs.values().iterator().next();
        Scenarios.check(dir.replicaInfos().get(new TopicPartition("java-log-dirs", 0)).size() > 100, "bytes of the partition");
        Scenarios.check(dir.totalBytes().getAsLong() > dir.usableBytes().getAsLong(), "total and usable bytes");
    }

    private void producers(Admin admin) throws Exception {
        send("java-producers", "p", 1, 2, 3);
        TopicPartition partition = new TopicPartition("java-producers", 0);
        List<ProducerState> states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        Scenarios.equal(1, states.size(), "producers");
        Scenarios.equal(2, states.get(0).lastSequence(), "last sequence");
        Scenarios.equal(3L, states.get(0).lastTimestamp(), "last timestamp");
    }

    private void cluster(Admin admin) throws Exception {
        Scenarios.equal(22, admin.describeCluster().clusterId().get().length(), "cluster id");
        Scenarios.equal(1, admin.describeCluster().nodes().get().size(), "nodes");
        Scenarios.equal(1, admin.describeCluster().controller().get().id(), "controller");
    }

    private void features(Admin admin) throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        Scenarios.check(features.supportedFeatures().containsKey("metadata.version"), "supported: " + features.supportedFeatures());
        Scenarios.check(features.finalizedFeatures().containsKey("metadata.version"), "finalized: " + features.finalizedFeatures());
        Scenarios.check(features.finalizedFeaturesEpoch().isPresent(), "epoch");
    }

    private void quorum(Admin admin) throws Exception {
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Scenarios.check(quorum.voters().stream().anyMatch(voter -> voter.replicaId() == quorum.leaderId()), "the leader votes");
        Scenarios.check(quorum.leaderEpoch() >= 0 && quorum.highWatermark() > 0, "epoch and high watermark");
    }

    private void clientQuotas(Admin admin) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "java-quota"));
        ClientQuotaFilter filter = ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, "java-quota")));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", 1_000_000.0),
            new ClientQuotaAlteration.Op("request_percentage", 150.5))))).all().get();
        Scenarios.equal(
            Map.of(entity, Map.of("producer_byte_rate", 1_000_000.0, "request_percentage", 150.5)),
            admin.describeClientQuotas(filter).entities().get(), "quotas");
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", null),
            new ClientQuotaAlteration.Op("request_percentage", null))))).all().get();
        Scenarios.equal(Map.of(), admin.describeClientQuotas(filter).entities().get(), "after they were removed");
        Scenarios.fails(org.apache.kafka.common.errors.InvalidRequestException.class, admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op("no_such_quota", 1.0))))).all()::get);
    }

    private void reassignments(Admin admin) throws Exception {
        create(admin, "java-reassign", 1, Map.of());
        Scenarios.equal(Map.of(), admin.listPartitionReassignments().reassignments().get(), "under way");
        TopicPartition partition = new TopicPartition("java-reassign", 0);
        admin.alterPartitionReassignments( // To where the partition is already.
            Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get();
        Scenarios.fails(NoReassignmentInProgressException.class,
            admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all()::get);
        Optional<Throwable> found = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
        Scenarios.check(found.orElseThrow() instanceof ElectionNotNeededException, "elected: " + found);
        admin.electLeaders(ElectionType.UNCLEAN, null).all().get();
    }
}
