// A consumer in Node 22 or later: npm install @nats-io/transport-node @nats-io/jetstream cloudevents
import { connect } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { CloudEvent } from "cloudevents";

const nc = await connect({ servers: process.env.NATS_URL });
const manager = await jetstreamManager(nc);

// The name of the live generation.
async function live() {
  return (await manager.streams.getMessage("KV_TRIBUTARY", { last_by_subj: "$KV.TRIBUTARY.current" })).string();
}

// The attributes of a CloudEvent in binary mode: headers ce-*, percent-encoded.
function cloudEvent(message) {
  const attributes = {};
  for (const [name, values] of message.headers) {
    if (name.startsWith("ce-")) attributes[name.slice(3)] = decodeURIComponent(values[0]);
  }
  return new CloudEvent({ ...attributes, data: message.json() });
}

const bySession = new Map(); // session -> event_id -> event
let have; // the generation of these events: where they are stored, store it beside them

function handle(event) {
  const { data } = event;
  const session = `${data.source} ${data.session_id}`;
  if (!bySession.has(session)) bySession.set(session, new Map());
  const events = bySession.get(session);
  if (data.supersedes) events.delete(data.supersedes); // it replaces that one
  events.set(data.event_id, data); // a repeated delivery replaces itself
  console.log(event.type, event.sequence, data.text);
}

for (;;) {
  const generation = await live();
  const stream = `EVENTS_${generation}`;
  if (generation !== have) { // begin again, with every event of this one
    await manager.consumers.delete(stream, "mine").catch((error) => {
      if (error.code !== 10014) throw error; // consumer not found
    });
    bySession.clear();
    have = generation;
    console.log("live:", generation);
  }
  await manager.consumers.add(stream, {
    durable_name: "mine", ack_policy: "explicit", max_ack_pending: 1, filter_subject: `events.${generation}.>`,
  });
  await manager.consumers.reset(stream, "mine"); // what a killed process had is delivered at once
  const consumer = await jetstream(nc).consumers.get(stream, "mine");
  for (;;) {
    let message = null;
    try {
      message = await consumer.next({ expires: 1000 });
    } catch (error) { // the generation may have been dropped
      if (await live() === generation) throw error;
    }
    if (message) {
      handle(cloudEvent(message));
      message.ack();
    } else if (await live() !== generation) break; // looked at when no event has arrived for a second
  }
}
