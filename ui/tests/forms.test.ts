// Fields are checked as the server checks them, and edited arguments come back with their types.
import assert from "node:assert/strict";
import { test } from "node:test";
import { listChanged, readArguments, startDrafts } from "../src/forms/argument_drafts.ts";
import { checkField, initialValue, readValue } from "../src/forms/fields.ts";
import type { InputField } from "../src/generated/events.ts";
import { t } from "../src/texts.ts";

function field(more: Partial<InputField>): InputField {
  return {
    field_name: "name",
    field_label: null,
    field_description: null,
    field_type: "text",
    field_values: null,
    default_value: null,
    required: true,
    value: null,
    placeholder: null,
    pattern: null,
    minimum: null,
    maximum: null,
    min_length: null,
    max_length: null,
    ...more,
  };
}

test("a required field must be filled in, unless it has a default", () => {
  assert.equal(checkField(field({}), ""), t.required);
  assert.equal(checkField(field({ required: false }), ""), null);
  assert.equal(checkField(field({ default_value: "x" }), ""), null);
});

test("a pattern is matched as a whole, with hyphens in classes", () => {
  const repository = field({ pattern: "[a-z0-9-]+" });
  assert.equal(checkField(repository, "my-repo"), null);
  assert.equal(checkField(repository, "My Repo"), t.fields.pattern);
  assert.equal(checkField(field({ pattern: "(?P<unknown>x)" }), "anything"), null); // left to the server
});

test("numbers have their bounds", () => {
  const count = field({ field_type: "integer", minimum: 1, maximum: 6 });
  assert.equal(checkField(count, "2"), null);
  assert.equal(checkField(count, "2.5"), t.fields.integer);
  assert.equal(checkField(count, "0"), t.fields.minimum(1));
  assert.equal(checkField(count, "7"), t.fields.maximum(6));
  assert.equal(checkField(count, "many"), t.fields.number);
  assert.equal(readValue(count, "2"), 2);
});

test("lengths count characters as people do", () => {
  assert.equal(checkField(field({ max_length: 2 }), "😀😀"), null);
  assert.equal(checkField(field({ min_length: 3 }), "😀😀"), t.fields.minLength(3));
});

test("addresses have their form", () => {
  assert.equal(checkField(field({ field_type: "email" }), "a@b.example"), null);
  assert.equal(checkField(field({ field_type: "email" }), "nobody"), t.fields.email);
  assert.equal(checkField(field({ field_type: "url" }), "https://b.example/x"), null);
  assert.equal(checkField(field({ field_type: "url" }), "javascript:alert(1)"), t.fields.url);
});

test("a field begins with its value, else its default", () => {
  assert.equal(initialValue(field({ value: "v", default_value: "d" })), "v");
  assert.equal(initialValue(field({ field_type: "boolean", default_value: true })), true);
  assert.deepEqual(initialValue(field({ field_type: "multiselect", default_value: ["a"] })), ["a"]);
});

test("arguments that are edited keep their types, and what was changed is known", () => {
  const call = { name: "web", replicas: 3, labels: { team: "a" } };
  const drafts = startDrafts(call);
  assert.deepEqual(readArguments(call, drafts), call);
  assert.deepEqual(listChanged(call, drafts), []);
  const edited = { ...drafts, name: "3", replicas: "4" };
  assert.deepEqual(readArguments(call, edited), { name: "3", replicas: 4, labels: { team: "a" } });
  assert.deepEqual(listChanged(call, edited), ["name", "replicas"]);
  assert.equal(readArguments(call, { ...drafts, labels: "{" }), null);
});
