// Skills as the skills API gives them: where each comes from, how it stands, and the requests that change one.
import { type Problem, request } from "../../api/rest.ts";
import type { Tone } from "../parts/status_badge.tsx";

export type Origin = "shipped" | "folder" | "stored" | "hub";

export interface Finding {
  code: string;
  severity: "block" | "warn";
  file: string;
  line: number | null;
  message: string;
}

export interface Skill {
  id: string;
  name: string;
  description: string;
  source_id: string | null;
  origin: Origin;
  content: string | null;
  ancillary_files: { [path: string]: string };
  metadata: { [name: string]: string };
  version: string | null;
  license: string | null;
  compatibility: string | null;
  allowed_tools: string[];
  files: { path: string; size: number }[];
  enabled: boolean;
  used: boolean;
  shadowed_by: Origin | null;
  findings: Finding[];
  problems: Problem[];
}

export interface SkillList {
  skills: Skill[];
  meta: { total: number; source_problems: { source: string; reason: string }[] };
}

export interface Hub {
  id: string;
  url: string;
  ref: string;
  path: string;
  commit: string;
  configured: boolean;
  skills: number;
  problem: string;
}

export interface SkillCheck {
  valid: boolean;
  blocked: boolean;
  name: string | null;
  problems: Problem[];
  findings: Finding[];
}

export type SkillState = "used" | "disabled" | "shadowed" | "broken";

export function stateOf(skill: Skill): SkillState {
  if (skill.problems.length > 0) return "broken";
  if (!skill.enabled) return "disabled";
  return skill.shadowed_by === null ? "used" : "shadowed";
}

export const TONES: { [state in SkillState]: Tone } = {
  used: "good",
  disabled: "neutral",
  shadowed: "neutral",
  broken: "bad",
};

function pathOfSkill(skill: Skill, action = ""): string {
  const query = new URLSearchParams({ source: skill.origin });
  if (skill.source_id !== null) query.set("source_id", skill.source_id);
  return `/skills/${encodeURIComponent(skill.name)}${action}?${query}`;
}

export const contentPath = (skill: Skill) => pathOfSkill(skill);

export function setEnabled(skill: Skill, isEnabled: boolean): Promise<Skill> {
  return request<Skill>("POST", pathOfSkill(skill, isEnabled ? "/enable" : "/disable"));
}

/** Only the version that was shown is deleted. */
export function deleteSkill(skill: Skill): Promise<void> {
  const headers: { [name: string]: string } = skill.version === null ? {} : { "If-Match": `"${skill.version}"` };
  return request("DELETE", `/skills/${encodeURIComponent(skill.name)}`, undefined, { headers });
}

export const checkSkill = (content: string) => request<SkillCheck>("POST", "/skills/validate", { content });
export const addSkill = (content: string) => request<Skill>("POST", "/skills", { content });
export const addHub = (url: string, ref: string, path: string) =>
  request<Hub>("POST", "/skills/hubs", { url, ref, path });
export const refreshHub = (hub: Hub) =>
  request<Hub>("POST", `/skills/hubs/${encodeURIComponent(hub.id)}/refresh`);
export const removeHub = (hub: Hub) => request<void>("DELETE", `/skills/hubs/${encodeURIComponent(hub.id)}`);

/** SKILL.md without its front matter, which is shown on its own. */
export function bodyOf(content: string): string {
  return content.replace(/^\uFEFF?---\r?\n[\s\S]*?\r?\n---[ \t]*(\r?\n|$)/, "");
}
