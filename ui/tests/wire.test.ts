// Server-sent events wherever they are cut, and frames as events.
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeFrame, decodeTask } from "../src/a2a/decode.ts";
import { EventReader } from "../src/a2a/event_reader.ts";

test("events come whole, wherever the text is cut", () => {
  const text = ': keep-alive\n\nid: 1\ndata: {"a": 1}\n\nid: 2\r\ndata: one\r\ndata: two\r\n\r\ndata:three\n\n';
  for (let size = 1; size <= text.length; size++) {
    const reader = new EventReader();
    const events: string[] = [];
    for (let start = 0; start < text.length; start += size) events.push(...reader.read(text.slice(start, start + size)));
    assert.deepEqual(events, ['{"a": 1}', "one\ntwo", "three"], `pieces of ${size}`);
  }
});

test("a frame carries its event, its number and its text", () => {
  const metadata = { "caipe.event": '{"kind": "text_delta", "message_id": "m", "offset": 0}', "caipe.seq": "7" };
  const artifact = { artifactId: "text-m", parts: [{ text: "Hel" }, { text: "lo" }], metadata };
  const [item] = decodeFrame({ artifactUpdate: { taskId: "t", artifact } });
  assert.equal(item?.seq, 7);
  assert.equal(item?.event.kind === "text_delta" && item.event.text, "Hello");
  assert.deepEqual(decodeFrame({ statusUpdate: { taskId: "t" } }), []);
});

test("the texts of a task are in its artifacts: an answer that was streamed in that of its pieces", () => {
  const answered = (more: object) => JSON.stringify([[3, { kind: "answered", trace_id: "x", ...more }, "2026-11-18T09:00:00Z"]]);
  const read = (more: object, artifactId: string) =>
    decodeTask({
      id: "t",
      contextId: "c",
      artifacts: [{ artifactId, parts: [{ text: "Done." }] }],
      metadata: { "caipe.events": answered(more) },
    })[0]?.event;
  for (const event of [read({ message_id: "m" }, "text-m"), read({ message_id: "m", slot: "s" }, "text-s"), read({}, "final_result-t")]) {
    assert.equal(event?.kind === "answered" && event.text, "Done.");
  }
});
