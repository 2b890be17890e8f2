package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/terminal"
	"tributary/envelopes"
	"tributary/envelopes/schema"
	"tributary/pipeline/sessions/titles"
	"tributary/pipeline/streams"
)

func schemaAsyncAPICommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "asyncapi",
		Short: "Print the AsyncAPI document of all subjects",
		Long: `Print the AsyncAPI 3 document of what is on the broker: the address, parameters, messages
and headers of each subject, the schemas of payloads in the view of consumers, and the
operations of a program beside Tributary. The server is that of NATS_URL.`,
		Example: `  tributary schema asyncapi >asyncapi.json
  tributary schema asyncapi | jq '.channels | map_values(.address)'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			document, err := asyncAPI(a.config.NATSURL)
			if err != nil {
				return err
			}
			return terminal.WriteJSON(a.stdout, document, jsontext.WithIndent("  "))
		},
	}
}

// object is an object of the document.
type object = map[string]any

// asyncAPI returns the AsyncAPI document. It takes subjects, headers and types from the code.
func asyncAPI(servers string) (object, error) {
	schemas, err := payloadSchemas()
	if err != nil {
		return nil, err
	}
	headers, err := eventHeaders()
	if err != nil {
		return nil, err
	}
	releases := schema.Events.Releases()
	messages := asyncMessages(headers)
	channels := asyncChannels()
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title":       "Tributary",
			"version":     strings.TrimPrefix(releases[len(releases)-1], "v") + ".0",
			"description": "One stream of events from the logs of coding agents. Values of headers are percent-encoded. Unknown headers, fields and values of enums pass: a later version may have them.",
		},
		"defaultContentType": "application/json",
		"servers":            asyncServers(servers),
		"channels":           channels,
		"operations":         asyncOperations(),
		"components":         object{"messages": messages, "schemas": schemas},
	}, nil
}

// asyncServers returns the servers of a list of URLs, without secrets.
func asyncServers(list string) object {
	out := object{}
	for server := range strings.SplitSeq(list, ",") {
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		if u, err := url.Parse(strings.TrimSpace(server)); err == nil && u.Host != "" {
			out[fmt.Sprintf("nats%d", len(out)+1)] = object{"host": u.Host, "protocol": "nats", "description": "NATS server with JetStream."}
		}
	}
	return out
}

// parameters describes the parts of addresses.
var parameters = map[string]object{
	"source":     {"description": "Agent that wrote the record.", "enum": texts(envelopes.Sources)},
	"session":    {"description": "Token of the session id: the id itself, or ~ and its base64url, or ~~ and its SHA-256."},
	"generation": {"description": "Set of events that one revision and its settings make of the raw records."},
	"event_type": {"description": "Kind of occurrence.", "enum": texts(envelopes.EventTypes)},
	"partition":  {"description": "Number of the partition of the session."},
	"archive":    {"description": "Number of the archive, a function of the session."},
}

// address replaces the wildcards of a filter by names, in their order.
func address(filter string, names ...string) string {
	for _, name := range names {
		filter = strings.Replace(filter, "*", "{"+name+"}", 1)
	}
	return filter
}

// channel returns a channel with the parameters that its address names.
func channel(address, description string, messages ...string) object {
	out := object{"address": address, "description": description}
	list, used := object{}, object{}
	for _, name := range messages {
		list[name] = object{"$ref": "#/components/messages/" + name}
	}
	for name, parameter := range parameters {
		if strings.Contains(address, "{"+name+"}") {
			used[name] = parameter
		}
	}
	out["messages"] = list
	if len(used) > 0 {
		out["parameters"] = used
	}
	return out
}

// asyncChannels returns every subject.
func asyncChannels() object {
	const generation = "{generation}"
	stored := strings.Replace(envelopes.RawFilter(0, "", ""), "0", "*", 1)
	subjects := envelopes.GenerationSubjects(generation) // events, dead letters, states, checkpoints, archives
	stream := "Stream " + streams.EventsStream(generation) + ": "
	channels := object{
		"raw": channel(address("raw.*.*", "source", "session"),
			"Where a producer publishes records. The stream "+streams.RawStream+" stores them by partition, see rawByPartition.", "record", "largeRecord", "endOfInput"),
		"rawByPartition": channel(address(stored, "partition", "source", "session"),
			"Stream "+streams.RawStream+": the records as they are stored.", "record", "largeRecord", "endOfInput"),
		"events":      channel(address(subjects[0], "source", "session", "event_type"), stream+"the events. All of them: "+envelopes.EventFilter(generation, "", "", "")+".", "event", "structuredEvent"),
		"deadletters": channel(address(subjects[1], "partition", "source", "session"), stream+"records that cannot be read.", "deadLetter"),
		"states":      channel(address(subjects[2], "partition", "source", "session"), stream+"states of sessions, and behind a plus their changes since, of no use to consumers: their content changes between versions.", "internal"),
		"checkpoints": channel(address(subjects[3], "partition"), stream+"checkpoints of partitions, of no use to consumers: their content changes between versions.", "internal"),
		"archives":    channel(address(subjects[4], "partition", "archive"), stream+"states of sessions that ended long ago, many in each message, of no use to consumers: their content changes between versions.", "internal"),
	}
	metadata, changes := titles.Subjects()
	channels["sessionMetadata"] = channel(address(metadata, "source", "session"), "Stream "+streams.SessionsStream+": title and pin of a session, the newest record only.", "sessionMetadata")
	channels["sessionChanges"] = channel(address(changes, "source", "session"), "Stream "+streams.SessionsStream+": the changes of titles and pins.", "titleUpdated", "pinnedUpdated", "structuredChange")
	for _, endpoint := range titles.Endpoints() {
		channels["sessions_"+endpoint] = channel(titles.SubjectPrefix+endpoint, "Request to the service "+titles.ServiceName+".", "request")
	}
	channels["replies"] = object{"address": nil, "description": "Where the reply of a request is expected.", "messages": object{"reply": object{"$ref": "#/components/messages/reply"}}}
	return channels
}

// asyncOperations returns what Tributary does: it receives records and requests, and sends everything else.
func asyncOperations() object {
	operation := func(action, channel, summary string) object {
		return object{"action": action, "channel": object{"$ref": "#/channels/" + channel}, "summary": summary}
	}
	operations := object{
		"receiveRecords":      operation("receive", "raw", "Workers take the records that producers publish."),
		"storeRecords":        operation("send", "rawByPartition", "The broker stores each record under its partition."),
		"sendEvents":          operation("send", "events", "Workers store the events of a generation, each exactly once, in order per session."),
		"sendDeadLetters":     operation("send", "deadletters", "Workers store what they cannot read."),
		"sendStates":          operation("send", "states", "Workers store the state of each session."),
		"sendCheckpoints":     operation("send", "checkpoints", "Workers store how far each partition is done."),
		"sendArchives":        operation("send", "archives", "Workers move the states of sessions that ended long ago there."),
		"sendSessionMetadata": operation("send", "sessionMetadata", "The service stores the record of a session."),
		"sendSessionChanges":  operation("send", "sessionChanges", "The service stores each change together with the record."),
	}
	for _, endpoint := range titles.Endpoints() {
		o := operation("receive", "sessions_"+endpoint, "Answer requests at "+endpoint+".")
		o["reply"] = object{"address": object{"location": "$message.header#/Reply-To", "description": "The reply subject of NATS."}, "channel": object{"$ref": "#/channels/replies"}}
		operations["answer_"+endpoint] = o
	}
	return operations
}

// header is a header of a message.
func header(description string) object { return object{"type": "string", "description": description} }

// message returns a message; required are the headers that every such message has.
func message(title, contentType string, headers object, required []string, payload any) object {
	h := object{"type": "object", "properties": headers}
	if len(required) > 0 {
		h["required"] = required
	}
	return object{"name": title, "title": title, "contentType": contentType, "headers": h, "payload": payload}
}

// schemaRef refers to a schema of the document.
func schemaRef(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// asyncMessages returns every message.
func asyncMessages(event eventHeaderSet) object {
	cloudEvents := "application/cloudevents+json"
	contentType := object{contentTypeHeader: object{"type": "string", "const": cloudEvents}}
	trace := object{
		envelopes.HeaderTraceparent: header("W3C trace context of the last hop."),
		envelopes.HeaderTracestate:  header("W3C trace state of the last hop."),
	}
	batch := object{
		"Nats-Batch-Id":       header("The atomic batch that stored the message."),
		"Nats-Batch-Sequence": header("Position in that batch."),
		"Nats-Batch-Commit":   header("On the last message of a batch."),
	}
	expiry := object{jetstream.MsgTTLHeader: header("Time to live of the message.")}
	session := object{envelopes.HeaderSession: header("Session id, if its token in the subject is a digest.")}
	fenced := object{
		jetstream.MsgRollup:                 header("The stream keeps the newest message of the subject only."),
		jetstream.ExpectedLastSubjSeqHeader: header("Sequence of the previous message."),
	}
	record := joinObjects(trace, batch, session, recordHeaders())
	letter := joinObjects(trace, batch, session, expiry, deadLetterHeaders())
	change := joinObjects(batch, expiry, trace, object{
		"Tributary-Previous":                header("Sequence of the previous change of the session."),
		jetstream.ExpectedLastSubjSeqHeader: header("Sequence of the previous message."),
	})
	changeHeaders := object{}
	for _, name := range []string{"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject", "ce-time", "ce-datacontenttype", contentTypeHeader, "ce-partitionkey", "ce-sequence", "ce-sessionid"} {
		changeHeaders[name] = header(attributeDescriptions[name])
	}
	changeRequired := slices.Sorted(maps.Keys(changeHeaders))
	changeHeaders = joinObjects(change, changeHeaders)
	return object{
		"record":           message("Raw record", "application/octet-stream", record, nil, object{"description": "Bytes of the record as the agent wrote them."}),
		"largeRecord":      message("Raw record in the object store", "application/octet-stream", record, []string{envelopes.HeaderClaim}, object{"description": "Empty: the object has the bytes."}),
		"endOfInput":       message("End of the input", "application/octet-stream", record, []string{envelopes.HeaderEnd}, object{"description": "Empty."}),
		"event":            message("AgentEventV1", "application/json", joinObjects(event.properties, trace, batch, session, expiry), event.required, schemaRef(string(schema.Events))),
		"structuredEvent":  message("AgentEventV1 as a structured CloudEvent", cloudEvents, joinObjects(contentType, trace, batch, session, expiry), []string{contentTypeHeader}, event.document()),
		"deadLetter":       message("Dead letter", "application/octet-stream", letter, deadLetterRequired, object{"description": "Bytes of the record; empty if they do not fit."}),
		"internal":         message("Internal", "application/octet-stream", joinObjects(batch, fenced), nil, object{"description": "No contract."}),
		"sessionMetadata":  message("Title and pin of a session", "application/json", joinObjects(batch, fenced, trace), nil, schemaRef("session")),
		"titleUpdated":     message("Title of a session changed", "application/json", changeHeaders, changeRequired, schemaRef(string(titles.TitleUpdated))),
		"pinnedUpdated":    message("Pin of a session changed", "application/json", changeHeaders, changeRequired, schemaRef(string(titles.PinnedUpdated))),
		"structuredChange": message("Change of a session as a structured CloudEvent", cloudEvents, joinObjects(contentType, change), []string{contentTypeHeader}, object{"type": "object"}),
		"request":          message("Request", "application/json", object{}, nil, object{"type": "object"}),
		"reply": message("Reply", "application/json", object{
			micro.ErrorHeader: header("Error, if the request failed."), micro.ErrorCodeHeader: header("Code of the error."),
		}, nil, object{"type": "object"}),
	}
}

// joinObjects returns the members of all objects.
func joinObjects(objects ...object) object {
	out := object{}
	for _, o := range objects {
		maps.Copy(out, o)
	}
	return out
}

// recordHeaders are the headers of a raw record, without those of the broker.
func recordHeaders() object {
	return object{
		jetstream.MsgIDHeader:    header("Id by which the broker drops a record that is published twice."),
		envelopes.HeaderFile:     header("Identity of the file that holds the record."),
		envelopes.HeaderPosition: header("Byte offset of the record in the file, and of the previous record of the session; -1 for none."),
		envelopes.HeaderDigest:   header("SHA-256 of the record in hex, for a file that is rewritten in place."),
		envelopes.HeaderTime:     header("Time of a record that states none, in a session that states none."),
		envelopes.HeaderParent:   header("Session that started that of the record as a subagent."),
		envelopes.HeaderHost:     header("Machine that sent the record."),
		envelopes.HeaderUser:     header("User that sent the record."),
		envelopes.HeaderLabels:   header("Labels of the sender: NAME=VALUE, separated by commas."),
		envelopes.HeaderVerified: header("1 if the receiver of the record has verified the user."),
		envelopes.HeaderEnd:      header("1 on the end of the input."),
		envelopes.HeaderRequeued: header("Sequence of the record that this one repeats."),
		envelopes.HeaderClaim:    header("Object that holds the bytes of a large record: <bucket>/<sha256>;<size>."),
	}
}

// deadLetterRequired are the headers that every dead letter has.
var deadLetterRequired = []string{
	envelopes.HeaderReason, envelopes.HeaderError, envelopes.HeaderStream, envelopes.HeaderSequence,
	envelopes.HeaderGeneration, envelopes.HeaderNormalizer, envelopes.HeaderFirstSeen, envelopes.HeaderSize,
}

// deadLetterHeaders are the headers of a dead letter, without those of the broker.
func deadLetterHeaders() object {
	out := object{
		envelopes.HeaderReason:     header("Kind of the error, of a bounded set."),
		envelopes.HeaderError:      header("The error, without any content of the record."),
		envelopes.HeaderStream:     header("Stream of the record."),
		envelopes.HeaderSequence:   header("Sequence of the record in that stream."),
		envelopes.HeaderGeneration: header("Generation that cannot read the record."),
		envelopes.HeaderNormalizer: header("Revision of the normalizers."),
		envelopes.HeaderFirstSeen:  header("When the broker stored the record."),
		envelopes.HeaderSize:       header("Bytes of the record."),
		envelopes.HeaderRequeued:   header("Sequence of the record that this one repeats."),
	}
	for name, h := range joinObjects(recordHeaders(), object{envelopes.HeaderSession: header("Session id."), envelopes.HeaderTraceparent: header("W3C trace context."), envelopes.HeaderTracestate: header("W3C trace state.")}) {
		out[envelopes.HeaderOriginal+name] = header("Header of the record: " + h.(object)["description"].(string))
	}
	return out
}

// contentTypeHeader is a header of every CloudEvent but no attribute.
const contentTypeHeader = "Content-Type"

// attributeDescriptions describes the attributes of CloudEvents, by their headers.
var attributeDescriptions = map[string]string{
	"ce-specversion":     "Version of CloudEvents.",
	"ce-id":              "event_id, or the id of the change of a session.",
	"ce-source":          "/<generation>/<source>/<session_id>; for a change of a session /sessions/<source>/<session_id>. Unique together with the id.",
	"ce-type":            "Kind of occurrence.",
	"ce-subject":         "session_id.",
	"ce-time":            "Time of the occurrence.",
	"ce-datacontenttype": "Media type of the payload.",
	contentTypeHeader:    "Media type of the payload, as in ce-datacontenttype.",
	"ce-dataschema":      "Version of the schema of the payload: the $id that tributary schema print prints.",
	"ce-sessionid":       "session_id.",
	"ce-partitionkey":    "session_id.",
	"ce-sequence":        "Position in the session in 20 digits; for a change of a session its metadata_version.",
	"ce-model":           "Model, if known.",
	"ce-generation":      "Generation of the event.",
	"ce-partition":       "Partition of the session.",
	"ce-rawstream":       "Stream of the raw record.",
	"ce-rawsequence":     "Sequence of the raw record in that stream.",
	"ce-traceparent":     "W3C trace context of the creation of the raw record.",
	"ce-tracestate":      "W3C trace state of the creation of the raw record.",
}

// eventHeaderSet are the headers of events in binary mode.
type eventHeaderSet struct {
	properties object
	required   []string
}

// eventHeaders finds the headers by writing two events without a common value: a header that one of them lacks is
// optional, a header that is equal in both is constant.
func eventHeaders() (eventHeaderSet, error) {
	first := envelopes.AgentEventV1{
		SchemaVersion: envelopes.SchemaVersion, Source: envelopes.Sources[0], SessionID: "a", EventID: "b", TS: "2026-03-09T09:00:00Z",
		EventType: envelopes.ToolCall, Sequence: 1, Model: new("c"),
	}
	second := envelopes.AgentEventV1{
		SchemaVersion: envelopes.SchemaVersion, Source: envelopes.Sources[1], SessionID: "d", EventID: "e", TS: "2026-03-09T09:00:01Z",
		EventType: envelopes.UserMessage, Sequence: 2,
	}
	all, _, err := envelopes.EncodeEvent(&first, envelopes.Provenance{
		Generation: "v1", RawStream: streams.RawStream, RawSequence: 1,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "a=b",
	}, envelopes.Binary)
	if err != nil {
		return eventHeaderSet{}, err
	}
	few, _, err := envelopes.EncodeEvent(&second, envelopes.Provenance{Generation: "v2", Partition: -1}, envelopes.Binary)
	if err != nil {
		return eventHeaderSet{}, err
	}
	set := eventHeaderSet{properties: object{}}
	for name, values := range all {
		h := header(attributeDescriptions[name])
		if other, ok := few[name]; ok {
			set.required = append(set.required, name)
			if slices.Equal(values, other) {
				h["const"] = values[0]
			}
		}
		set.properties[name] = h
	}
	set.properties["ce-type"].(object)["examples"] = eventTypes()
	slices.Sort(set.required)
	return set, nil
}

// eventTypes are the types of the CloudEvents of events.
func eventTypes() []string {
	var out []string
	for _, t := range envelopes.EventTypes {
		out = append(out, envelopes.SchemaVersion+"."+string(t))
	}
	return out
}

// document returns the schema of a structured CloudEvent that has the attributes of the headers.
func (s eventHeaderSet) document() object {
	properties, required := object{"data": schemaRef(string(schema.Events))}, []string{"data"}
	for name, h := range s.properties {
		if name == contentTypeHeader {
			continue
		}
		attribute := maps.Clone(h.(object))
		if name == "ce-partition" {
			attribute["type"] = "integer"
		}
		properties[strings.TrimPrefix(name, "ce-")] = attribute
	}
	for _, name := range s.required {
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
			required = append(required, attribute)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// payloadSchemas returns the schemas of payloads. Definitions in the schema of events become schemas of the document,
// because AsyncAPI refers to those.
func payloadSchemas() (object, error) {
	text := bytes.ReplaceAll(schema.Events.Consumer(), []byte(`"#/$defs/`), []byte(`"#/components/schemas/`+string(schema.Events)+`.`))
	var events map[string]jsontext.Value
	if err := json.Unmarshal(text, &events); err != nil {
		return nil, err
	}
	var definitions map[string]jsontext.Value
	if err := json.Unmarshal(events["$defs"], &definitions); err != nil {
		return nil, err
	}
	for _, name := range []string{"$schema", "$id", "$defs"} {
		delete(events, name)
	}
	out := object{string(schema.Events): events}
	for name, definition := range definitions {
		out[string(schema.Events)+"."+name] = definition
	}
	return joinObjects(out, sessionSchemas()), nil
}

// sessionSchemas returns the schemas of the metadata of sessions.
func sessionSchemas() object {
	text := object{"type": "string"}
	version := object{"type": "integer", "minimum": 0}
	source := object{"type": "string", "examples": texts(envelopes.Sources)}
	titleSource := object{"type": "string", "examples": []titles.TitleSource{titles.SourceManual, titles.SourceAuto, titles.SourceFallback}}
	when := object{"type": "string", "format": "date-time"}
	of := func(properties object, optional ...string) object {
		var required []string
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if !slices.Contains(optional, name) {
				required = append(required, name)
			}
		}
		return object{"type": "object", "properties": properties, "required": required}
	}
	return object{
		"session": of(object{
			"source": source, "session_id": text, "title": text, "title_version": version, "title_source": titleSource,
			"pinned": object{"type": "boolean"}, "metadata_version": version, "updated_at": when,
		}, "title_source", "updated_at"),
		string(titles.TitleUpdated): of(object{
			"type": object{"const": titles.TitleUpdated}, "session_id": text, "title": text, "title_version": version, "source": titleSource, "updated_at": when,
		}),
		string(titles.PinnedUpdated): of(object{
			"type": object{"const": titles.PinnedUpdated}, "session_id": text, "pinned": object{"type": "boolean"}, "updated_at": when,
		}),
	}
}
