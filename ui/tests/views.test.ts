// The logic of the views: what a search finds, what a state is, and when a poll asks again.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readInputRequest } from "../src/api/input_requests.ts";
import { type Agent, countGroups, envLines, filterAgents } from "../src/components/agents/agents.ts";
import { type Datasource, type Job, latestJobs, type Passage, splitMatches, stateOf, textOf } from "../src/components/knowledge/knowledge.ts";
import { countTokens, mergeRuns, type Run, runsPath } from "../src/components/runs/runs.ts";
import { groupSettings, type Setting } from "../src/components/settings/settings.ts";
import { modelLines, splitHow } from "../src/components/setup/setup.ts";
import { bodyOf, type Skill, stateOf as stateOfSkill } from "../src/components/skills/skills.ts";
import { delayOf, Poll, type PollClock } from "../src/state/polling.ts";
import { formatBytes, formatInterval, formatRelative } from "../src/text/relative_time.ts";

const agent = (more: Partial<Agent>): Agent => ({
  name: "argocd",
  title: "Argo CD",
  description: "Applications",
  placement: "in-process",
  status: "ready",
  message: "",
  missing_variables: [],
  tools: [],
  tools_known: true,
  logins: [],
  ...more,
});

test("agents: problems come first, and all words must match", () => {
  const tools = [{ name: "sync", description: "Syncs an application", read_only: false, needs_approval: true }];
  const agents = [
    agent({ tools }),
    agent({ name: "aws", title: "AWS", status: "not_configured" }),
    agent({ name: "jira", title: "Jira", status: "unreachable", placement: "remote" }),
    agent({ name: "old", title: "Old", placement: "disabled", status: "disabled" }),
  ];
  assert.deepEqual(countGroups(agents), { all: 4, ready: 1, setup: 1, problem: 1, disabled: 1 });
  const names = (found: Agent[]) => found.map(item => item.name);
  assert.deepEqual(names(filterAgents(agents, "all", "")), ["jira", "argocd", "aws", "old"]);
  assert.deepEqual(names(filterAgents(agents, "setup", "")), ["aws"]);
  assert.deepEqual(names(filterAgents(agents, "all", "SYNCS argo")), ["argocd"]);
  assert.deepEqual(names(filterAgents(agents, "all", "syncs jira")), []);
});

test("agents: of alternatives the first is proposed", () => {
  assert.equal(envLines(agent({ missing_variables: ["A_TOKEN|B_TOKEN", "A_URL"] })), "A_TOKEN=\nA_URL=");
});

test("requests: what the wire leaves out is filled in", () => {
  const form = readInputRequest({ input_title: "Repo", input_fields: [{ field_name: "name", required: false }] }, null);
  assert.equal(form.type, "form");
  assert.deepEqual(form.type === "form" && [form.fields[0]!.field_type, form.fields[0]!.required], ["text", false]);
  const approval = readInputRequest({ approval: true, tool: "sync", allowed: ["approve"], digest: "d" }, "2026-01-01T00:00:00Z");
  assert.deepEqual(approval.type === "approval" && [approval.tool, approval.digest, approval.expires_at], [
    "sync",
    "d",
    "2026-01-01T00:00:00Z",
  ]);
});

const source = (more: Partial<Datasource>): Datasource => ({
  name: "docs",
  title: "",
  kind: "folder",
  location: "/docs",
  documents: 3,
  document_kinds: {},
  chunks: 4,
  embedded: 4,
  refreshed: null,
  restricted: false,
  refresh_every: null,
  next_refresh: null,
  refresh_failures: 0,
  ...more,
});
const job = (more: Partial<Job>): Job => ({
  id: "1",
  datasource: "docs",
  state: "done",
  total: 1,
  done: 1,
  skipped: 0,
  removed: 0,
  failed: [],
  cut: [],
  problem: "",
  created: "2026-01-01T00:00:00Z",
  ended: null,
  ...more,
});

test("datasources: a state by the newest job", () => {
  const jobs = [job({ id: "1" }), job({ id: "2", created: "2026-01-02T00:00:00Z", state: "running" })];
  assert.equal(latestJobs(jobs).get("docs")!.id, "2");
  assert.equal(stateOf(source({}), job({ state: "running" })), "reading");
  assert.equal(stateOf(source({}), job({ state: "failed", problem: "no such folder" })), "problem");
  assert.equal(stateOf(source({ embedded: 1 }), job({})), "indexing");
  assert.equal(stateOf(source({ embedded: 0 }), undefined), "ready"); // there is no embedding model
  assert.equal(stateOf(source({ documents: 0, chunks: 0, embedded: 0 }), undefined), "empty");
});

test("passages: matched words are marked where words begin", () => {
  const marked = (text: string, words: string[]) =>
    splitMatches(text, words).map(piece => (piece.isMatch ? `[${piece.text}]` : piece.text)).join("");
  assert.equal(marked("Groups of a group, regroup", ["group"]), "[Group]s of a [group], regroup");
  assert.equal(marked("C++ (fast)", ["c++", "(fast"]), "[C++] [(fast])");
  assert.equal(marked("Größe", ["größe"]), "[Größe]");
  assert.equal(marked("nothing", []), "nothing");
});

test("passages: the title is not said twice", () => {
  const passage = (snippet: string) => ({ title: "Rota", snippet }) as Passage;
  assert.equal(textOf(passage("# Rota\n\nThe pager.\n\nMore.")), "The pager.\nMore.");
  assert.equal(textOf(passage("# Rota")), "# Rota");
  assert.equal(textOf(passage("Rota\nx")), "Rota\nx");
});

const run = (more: Partial<Run>): Run => ({
  task_id: "t1",
  context_id: "c",
  question: "?",
  state: "completed",
  agents: [],
  started: "2026-01-01T00:00:00Z",
  updated: "2026-01-01T00:00:01Z",
  tokens: null,
  ...more,
});

test("runs: a refreshed page replaces what it has, and keeps the rest", () => {
  const merged = mergeRuns([run({ task_id: "t3" }), run({ task_id: "t2", state: "failed" })], [run({ task_id: "t2" }), run({})]);
  assert.deepEqual(merged.map(item => [item.task_id, item.state]), [
    ["t3", "completed"],
    ["t2", "failed"],
    ["t1", "completed"],
  ]);
  assert.equal(runsPath({ state: "failed", agent: "a&b", query: " x " }, "t"), "/v1/runs?page_size=50&state=failed&agent=a%26b&query=x&page_token=t");
  assert.equal(countTokens(run({ tokens: { input_tokens: 5, output_tokens: 7 } })), 12);
  assert.equal(countTokens(run({})), null);
});

test("settings: by group, searched, and only those that are set", () => {
  const setting = (name: string, group: string, from: string): Setting => ({
    name,
    value: null,
    source: from,
    secret: false,
    group,
    description: "",
  });
  const all = [setting("A2A_PORT", "server", "default"), setting("LLM_MODEL", "model", ".env"), setting("A2A_HOST", "server", "environment")];
  assert.deepEqual(groupSettings(all, "", false).map(group => group.name), ["server", "model"]);
  assert.deepEqual(groupSettings(all, "", true).map(group => group.settings.map(item => item.name)), [["LLM_MODEL"], ["A2A_HOST"]]);
  assert.deepEqual(groupSettings(all, "a2a host", false).map(group => group.settings.length), [1]);
});

test("skills: the state, and the text behind the front matter", () => {
  const skill = { enabled: true, shadowed_by: null, problems: [] } as unknown as Skill;
  assert.equal(stateOfSkill(skill), "used");
  assert.equal(stateOfSkill({ ...skill, enabled: false }), "disabled");
  assert.equal(stateOfSkill({ ...skill, shadowed_by: "stored" }), "shadowed");
  assert.equal(stateOfSkill({ ...skill, problems: [{ message: "no name" }] }), "broken");
  assert.equal(bodyOf("---\r\nname: a\r\n---\r\n# A\r\n\r\n---\r\nb"), "# A\r\n\r\n---\r\nb");
  assert.equal(bodyOf("# A"), "# A");
});

test("first start: lines to copy, and code in the words", () => {
  const provider = { name: "openai", variables: ["OPENAI_API_KEY"], extra: null };
  assert.equal(modelLines(provider), "LLM_MODEL=openai:…\nOPENAI_API_KEY=…");
  assert.deepEqual(splitHow("Run `caipe agents`."), [
    { text: "Run ", isCode: false },
    { text: "caipe agents", isCode: true },
    { text: ".", isCode: false },
  ]);
});

test("times and sizes as people say them", () => {
  const now = Date.parse("2026-01-02T00:00:00Z");
  assert.equal(formatRelative("2026-01-01T23:55:00Z", now, "en"), "5 min. ago");
  assert.equal(formatRelative("2026-01-02T02:10:00Z", now, "en"), "in 2 hr.");
  assert.equal(formatRelative("2026-01-01T23:59:30Z", now, "en"), "now");
  assert.equal(formatInterval(86_400, "en"), "1 day");
  assert.equal(formatInterval(5400, "en"), "90 minutes");
  assert.equal(formatBytes(8, "en"), "8 bytes");
  assert.equal(formatBytes(1_234_567, "en"), "1.2 MB");
});

/** A clock that a test moves. */
class TestClock implements PollClock {
  hidden = false;
  timers: { milliseconds: number; callback: () => void }[] = [];
  listeners = new Set<() => void>();
  isHidden = () => this.hidden;
  onVisibility(callback: () => void) {
    this.listeners.add(callback);
    return () => void this.listeners.delete(callback);
  }
  after(milliseconds: number, callback: () => void) {
    const timer = { milliseconds, callback };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter(other => other !== timer);
    };
  }
  async fire() {
    this.timers.shift()?.callback();
    await settle();
  }
  async show(isShown: boolean) {
    this.hidden = !isShown;
    for (const listener of this.listeners) listener();
    await settle();
  }
}

const settle = () => new Promise(resolve => setImmediate(resolve));

test("polls: not while hidden, at once when shown, later after failures", async () => {
  const clock = new TestClock();
  let loads = 0;
  let isUp = true;
  const poll = new Poll(
    async () => {
      loads += 1;
      return isUp;
    },
    10,
    clock,
  );
  await settle();
  assert.deepEqual([loads, clock.timers.map(timer => timer.milliseconds)], [1, [10_000]]);
  await clock.show(false);
  assert.equal(clock.timers.length, 0);
  await clock.show(true);
  assert.deepEqual([loads, clock.timers.length], [2, 1]);
  isUp = false;
  await clock.fire();
  assert.equal(clock.timers[0]!.milliseconds, 20_000);
  poll.stop();
  assert.deepEqual([clock.timers.length, clock.listeners.size], [0, 0]);
  assert.equal(delayOf(10, 9), 60);
  assert.equal(delayOf(90, 3), 90);
});

test("polls: a reload while one is on its way loads again", async () => {
  const clock = new TestClock();
  const waiting: (() => void)[] = [];
  const poll = new Poll(() => new Promise(resolve => waiting.push(() => resolve(true))), 10, clock);
  poll.now();
  poll.now();
  assert.equal(waiting.length, 1);
  waiting[0]!();
  await settle();
  assert.equal(waiting.length, 2);
  waiting[1]!();
  await settle();
  assert.deepEqual([waiting.length, clock.timers.length], [2, 1]);
});
