// Words for durations, counts, days and files.
import assert from "node:assert/strict";
import { test } from "node:test";
import { withDraft } from "../src/state/drafts.ts";
import { listFar, MAX_LOADED } from "../src/state/windowing.ts";
import { fileName } from "../src/text/export.ts";
import { formatCount, formatDuration, formatResult, groupOfDay, summarizeArguments } from "../src/text/format.ts";
import { matchLabels } from "../src/text/match.ts";
import { reveal } from "../src/text/reveal.ts";

test("durations", () => {
  const cases: [number, string][] = [[-5, "0 ms"], [40, "40 ms"], [1_234, "1.2 s"], [9_960, "10 s"], [59_700, "1 min 0 s"], [61_000, "1 min 1 s"]];
  for (const [milliseconds, words] of cases) assert.equal(formatDuration(milliseconds), words);
  assert.equal(formatDuration(1_999, true), "1 s");
});

test("counts", () => {
  const cases: [number, string][] = [[999, "999"], [1_000, "1 k"], [3_260, "3.3 k"], [12_345, "12 k"], [2_000_000, "2 M"]];
  for (const [count, words] of cases) assert.equal(formatCount(count), words);
});

test("days", () => {
  const now = new Date(2026, 10, 18, 9);
  const at = (day: number, hour: number) => new Date(2026, 10, day, hour).toISOString();
  assert.equal(groupOfDay(at(18, 0), now), "today");
  assert.equal(groupOfDay(at(17, 23), now), "yesterday");
  assert.equal(groupOfDay(at(12, 12), now), "thisWeek");
  assert.equal(groupOfDay(at(1, 12), now), "older");
});

test("results and arguments", () => {
  assert.equal(formatResult('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(formatResult("{not json"), "{not json");
  assert.ok(formatResult("x".repeat(1_000_000)).length < 30_000);
  assert.equal(summarizeArguments({ a: "one\n two", b: 2, c: { d: 1 } }), "one two · 2");
});

test("names of files", () => {
  assert.equal(fileName("Why is it stuck?"), "why-is-it-stuck");
  assert.equal(fileName("../../etc"), "etc");
  assert.equal(fileName("???"), "conversation");
});

test("what cannot be seen is shown", () => {
  assert.equal(reveal("a\u202eb"), "a⟨U+202E⟩b");
});

test("drafts are bounded, and an empty one is none", () => {
  let drafts: [string, string][] = [];
  for (let index = 0; index < 100; index++) drafts = withDraft(drafts, `c${index}`, "text");
  assert.equal(drafts.length, 30);
  assert.equal(drafts.at(-1)?.[0], "c99");
  assert.deepEqual(withDraft([["a", "x"]], "a", ""), []);
  assert.equal(withDraft([], "a", "x".repeat(1_000_000))[0]?.[1].length, 20_000);
});

test("turns far from what is looked at are let go", () => {
  assert.deepEqual(listFar(MAX_LOADED, 3), []);
  for (const looked of [0, 150, 499]) {
    const far = listFar(500, looked);
    assert.equal(far.length, 500 - MAX_LOADED);
    assert.ok(!far.includes(looked));
  }
});

test("commands by a few letters", () => {
  const commands = [{ label: "Export as Markdown" }, { label: "Export as JSON" }];
  assert.deepEqual(matchLabels(commands, "mark EXP"), [commands[0]]);
  assert.equal(matchLabels(commands, "").length, 2);
});
