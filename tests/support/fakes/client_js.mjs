// The official JavaScript client of protocol 0.3 or 1.0, driven through what a program does with it.
// Prints a line of JSON for each scenario: the states, and the folded artifacts and the status text of the task.
// Arguments: the folder with the packages, the generation (03 or 10), the binding, the address of the server;
// `--push` and the address of a receiver for push notifications alone.
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, generation, binding, url, option, receiver] = process.argv.slice(2);
const isOld = generation === "03";
const resolve = createRequire(`${folder}/package.json`).resolve;
const clientModule = resolve(`a2a-sdk-${generation}/client`).replace(/\.cjs$/, ".js");
const { ClientFactory, ClientFactoryOptions } = await import(pathToFileURL(clientModule));
const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [binding] });
const client = await new ClientFactory(options).createFromUrl(url);

const STATES = [
  "unspecified", "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected",
];

function part(content) {
  if (isOld) {
    return typeof content === "string" ? { kind: "text", text: content } : { kind: "data", data: content };
  }
  const kind = typeof content === "string" ? "text" : "data";
  return { content: { $case: kind, value: content }, metadata: undefined, filename: "", mediaType: "" };
}

function message(content, task) {
  const ids = { contextId: task?.contextId, taskId: task?.id };
  if (isOld) {
    return { message: { kind: "message", role: "user", messageId: randomUUID(), parts: [part(content)], ...ids } };
  }
  return {
    tenant: "",
    message: {
      messageId: randomUUID(), role: 1, parts: [part(content)], metadata: undefined, extensions: [],
      referenceTaskIds: [], contextId: ids.contextId ?? "", taskId: ids.taskId ?? "",
    },
    configuration: undefined,
    metadata: undefined,
  };
}

const stateOf = (status) => (isOld ? status.state : STATES[status.state]);
const textOf = (parts) =>
  (parts ?? []).map((one) => (isOld ? one.text : one.content?.$case === "text" ? one.content.value : "") ?? "").join("");

function unwrap(event) {
  if (isOld) return [event.kind, event];
  return [{ task: "task", statusUpdate: "status-update", artifactUpdate: "artifact-update" }[event.payload.$case],
    event.payload.value];
}

class Folded {
  states = [];
  artifacts = new Map();

  take(event) {
    const [kind, value] = unwrap(event);
    if (kind === "task") this.takeTask(value);
    else if (kind === "status-update") {
      this.id = value.taskId;
      this.contextId = value.contextId;
      this.setStatus(value.status);
    } else {
      const before = value.append ? this.artifacts.get(value.artifact.artifactId)?.text ?? "" : "";
      const text = before + textOf(value.artifact.parts);
      this.artifacts.set(value.artifact.artifactId, { name: value.artifact.name, text });
    }
    return kind;
  }

  takeTask(task) {
    this.id = task.id;
    this.contextId = task.contextId;
    for (const one of task.artifacts ?? []) {
      this.artifacts.set(one.artifactId, { name: one.name, text: textOf(one.parts) });
    }
    this.setStatus(task.status);
    return this;
  }

  setStatus(status) {
    this.states.push(stateOf(status));
    this.said = textOf(status.message?.parts);
  }

  report(scenario) {
    const artifacts = [...this.artifacts.values()].filter((one) => one.text);
    console.log(JSON.stringify({ scenario, states: this.states, artifacts, said: this.said }));
  }
}

async function ask(scenario, text, ...answers) {
  let task;
  for (const content of [text, ...answers]) {
    const folded = new Folded();
    for await (const event of client.sendMessageStream(message(content, task))) folded.take(event);
    folded.report(scenario);
    task = folded;
  }
}

// Asks with a push config in the message, and sets, gets, lists and deletes those of a task that has ended.
async function beNotified() {
  const config = (path, id) => ({
    url: receiver + path, id, token: "a-token",
    ...(isOld ? {} : { tenant: "", taskId: "", authentication: undefined }),
  });
  const asked = message("Which version?");
  asked.configuration = isOld
    ? { blocking: true, pushNotificationConfig: config("/inline", "inline") }
    : { acceptedOutputModes: [], returnImmediately: false, taskPushNotificationConfig: config("/inline", "inline") };
  const answer = await client.sendMessage(asked);
  const task = answer.$case ? answer.value : answer;
  const set = (path, id) => isOld
    ? client.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig: config(path, id) })
    : client.createTaskPushNotificationConfig({ ...config(path, id), taskId: task.id });
  await set("/set", "other");
  await set("/deleted", "deleted");
  const named = (id) => (isOld ? { id: task.id, pushNotificationConfigId: id } : { tenant: "", taskId: task.id, id });
  await client.deleteTaskPushNotificationConfig(named("deleted"));
  const found = await client.getTaskPushNotificationConfig(named("other"));
  const whole = isOld ? { id: task.id } : { tenant: "", taskId: task.id, pageSize: 0, pageToken: "" };
  const page = await client.listTaskPushNotificationConfig(whole);
  const urls = (page.configs ?? page).map((one) => (one.pushNotificationConfig ?? one).url);
  console.log(JSON.stringify({ task: task.id, found: (found.pushNotificationConfig ?? found).url, urls }));
}

if (option === "--push") {
  await beNotified();
  process.exit(0);
}

const sent = await client.sendMessage(message("Which version?"));
new Folded().takeTask(sent.$case ? sent.value : sent).report("ask");
await ask("stream", "Which version?");
await ask("form by text", "Create a repo with a form.", "repo: blog\nstars: 3");
await ask("form by data", "Create a repo with a form.", { repo: "blog" });
await ask("approval by text", "Create a repo now.", "approve");

const first = new Folded();
for await (const event of client.sendMessageStream(message("Wait."))) {
  if (first.take(event) === "artifact-update") break;
}
const resumed = new Folded();
const named = { id: first.id, tenant: "" };
for await (const event of client.resubscribeTask(named)) {
  if (!resumed.states.length) console.log(JSON.stringify({ subscribed: true }));
  resumed.take(event);
}
resumed.report("resubscribe");

const cancelled = new Folded();
for await (const event of client.sendMessageStream(message("Hold."))) {
  cancelled.take(event);
  if (cancelled.states.at(-1) === "working") break;
}
const ended = await client.cancelTask({ id: cancelled.id, tenant: "", metadata: undefined });
new Folded().takeTask(ended).report("cancel");

async function list() {
  const pages = [];
  let pageToken = "";
  let total;
  do {
    const page = await client.listTasks({ tenant: "", contextId: "", status: 0, pageSize: 3, pageToken });
    pages.push(page.tasks.map((task) => [task.id, stateOf(task.status)]));
    pageToken = page.nextPageToken;
    total = page.totalSize;
  } while (pageToken);
  console.log(JSON.stringify({ scenario: "list", pages, total }));
}

if (!isOld) await list();
process.exit(0);
