# A topic of its own, a record in, the same record out, the topic gone. Set: BARNABAS_BOOTSTRAP_SERVER. Of two dollar signs
# in a row Kubernetes takes one away.
topic="helm-test-$(date +%s%N)"
sent="from $topic"
barnabas topics --create --topic "$topic" --partitions 1
trap 'barnabas topics --delete --topic "$topic"' EXIT
printf '%s\n' "$sent" | barnabas produce --topic "$topic"
read="$(barnabas consume --topic "$topic" --offset beginning --max-messages 1 --timeout-ms 30000 --quiet)"
[ "$read" = "$sent" ] || { echo "sent '$sent', but read '$read'" >&2; exit 1; }
echo "read what was sent, through $BARNABAS_BOOTSTRAP_SERVER"
