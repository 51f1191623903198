// The fold gives what core/transcript.py gives, for every golden file.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { fold, takeCharacters } from "../src/events/transcript.ts";
import type { RunEvent } from "../src/generated/events.ts";

const FOLDER = "../tests/fixtures/transcripts";

interface Golden {
  events: RunEvent[];
  transcript: unknown;
}

for (const name of readdirSync(FOLDER)) {
  test(`fold: ${name}`, () => {
    const cases = JSON.parse(readFileSync(`${FOLDER}/${name}`, "utf8")) as Golden[];
    assert.ok(cases.length > 0);
    for (const { events, transcript } of cases) {
      const folded = fold(events);
      assert.deepEqual({ ...folded, discarded: folded.discarded.toSorted() }, transcript);
    }
  });
}

test("offsets count code points", () => {
  assert.equal(takeCharacters("a😀b", 2), "a😀");
  assert.equal(takeCharacters("a😀b", 3), "a😀b");
  assert.equal(takeCharacters("abc", 9), "abc");
  assert.equal(takeCharacters("abc", 0), "");
});
