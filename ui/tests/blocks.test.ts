// Long texts are read in windows: nothing is lost, and no window is larger than it may be.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readWindow } from "../src/text/block_window.ts";

const PROSE = "# Title\n\nOne.\n\n- a\n- b\n\n```yaml\nkey: 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd.";

/** The texts of all pieces, joined, and their kinds. */
function readAll(text: string, size: number): { joined: string; kinds: string[]; longest: number } {
  let start = 0;
  let head = "";
  let longest = 0;
  const kinds: string[] = [];
  let joined = "";
  while (start < text.length) {
    const window = readWindow(text, start, size, {}, head);
    assert.ok(window.pieces.length > 0, "a window must make progress");
    for (const piece of window.pieces) {
      assert.ok(piece.length > 0);
      kinds.push(piece.token?.type ?? "plain");
      joined += text.slice(start, start + piece.length);
      longest = Math.max(longest, piece.length);
      start += piece.length;
    }
    head = window.isAtEnd ? "" : window.head;
  }
  return { joined, kinds, longest };
}

test("a text within the window is read as it is", () => {
  const { joined, kinds } = readAll(PROSE, 10_000);
  assert.equal(joined, PROSE);
  assert.deepEqual(kinds.filter(kind => kind !== "space"), ["heading", "paragraph", "list", "code", "table", "paragraph"]);
});

test("windows of any size lose nothing", () => {
  for (const size of [20, 33, 47, 80, 200]) assert.equal(readAll(PROSE, size).joined, PROSE);
});

test("a huge line is plain and never read as Markdown", () => {
  const line = "x".repeat(1_000_000);
  const { joined, kinds } = readAll(`Before.\n\n${line}\n\nAfter.`, 5_000);
  assert.equal(joined.length, line.length + "Before.\n\n\n\nAfter.".length);
  assert.ok(kinds.includes("plain"));
});

test("a huge table is divided, and each part has its head", () => {
  const rows = Array.from({ length: 2_000 }, (_, index) => `| row ${index} | ${index} |`).join("\n");
  const { joined, kinds, longest } = readAll(`| name | n |\n|---|---|\n${rows}\n`, 5_000);
  assert.equal(joined.length, `| name | n |\n|---|---|\n${rows}\n`.length);
  assert.ok(kinds.length > 4);
  assert.ok(kinds.every(kind => kind === "table"), kinds.join());
  assert.ok(longest <= 5_000);
});

test("a huge list is divided between its items", () => {
  const list = Array.from({ length: 2_000 }, (_, index) => `- item ${index}`).join("\n");
  const { joined, kinds, longest } = readAll(list, 5_000);
  assert.equal(joined, list);
  assert.ok(kinds.every(kind => kind === "list"), kinds.join());
  assert.ok(longest <= 5_000);
});

test("code that is longer than the window stays one block, closed or not", () => {
  const lines = Array.from({ length: 2_000 }, (_, index) => `line ${index}`).join("\n");
  for (const end of ["\n```\n\nAfter.", ""]) {
    const text = `\`\`\`bash\n${lines}${end}`;
    const { joined, kinds } = readAll(text, 5_000);
    assert.equal(joined, text);
    assert.equal(kinds.filter(kind => kind === "code").length, 1);
  }
});
