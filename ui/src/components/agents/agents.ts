// Agents as GET /v1/agents gives them: which group each belongs to, and what a search finds.
import type { Tone } from "../parts/status_badge.tsx";

export interface AgentTool {
  name: string;
  description: string;
  read_only: boolean | null;
  needs_approval: boolean | null;
}

export interface AgentLogin {
  server: string;
  owner: "person" | "installation";
  signed_in_at: string | null;
}

export interface Agent {
  name: string;
  title: string;
  description: string;
  placement: "in-process" | "remote" | "disabled";
  status: string;
  message: string;
  missing_variables: string[];
  tools: AgentTool[];
  tools_known: boolean;
  logins: AgentLogin[];
}

export type AgentGroup = "all" | "ready" | "setup" | "problem" | "disabled";

export const GROUPS: AgentGroup[] = ["all", "ready", "setup", "problem", "disabled"];

const ORDER: AgentGroup[] = ["problem", "ready", "setup", "disabled"];

export function groupOf(agent: Agent): AgentGroup {
  if (agent.placement === "disabled" || agent.status === "disabled") return "disabled";
  if (agent.status === "ready" || agent.status === "ok") return "ready";
  return agent.status === "not_configured" || agent.status === "not_installed" ? "setup" : "problem";
}

export function toneOf(agent: Agent): Tone {
  return ({ all: "neutral", ready: "good", setup: "neutral", problem: "bad", disabled: "neutral" } as const)[groupOf(agent)];
}

export function countGroups(agents: Agent[]): { [group in AgentGroup]: number } {
  const counts = { all: agents.length, ready: 0, setup: 0, problem: 0, disabled: 0 };
  for (const agent of agents) counts[groupOf(agent)] += 1;
  return counts;
}

/** Those of the group with all words in what is said of them: problems first, then by title. */
export function filterAgents(agents: Agent[], group: AgentGroup, words: string): Agent[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = agents.filter(agent => {
    if (group !== "all" && groupOf(agent) !== group) return false;
    const text = searchedText(agent);
    return wanted.every(word => text.includes(word));
  });
  const rank = (agent: Agent) => ORDER.indexOf(groupOf(agent));
  return matches.sort((first, second) => rank(first) - rank(second) || first.title.localeCompare(second.title));
}

function searchedText(agent: Agent): string {
  const tools = agent.tools.map(tool => `${tool.name} ${tool.description}`);
  return [agent.name, agent.title, agent.description, ...tools].join(" ").toLowerCase();
}

export const needsSignIn = (agent: Agent) => agent.logins.some(login => login.signed_in_at === null);

/** The lines of an `.env` file that set what is missing; of `A|B` one is enough. */
export function envLines(agent: Agent): string {
  return agent.missing_variables.map(names => `${names.split("|")[0]!}=`).join("\n");
}
