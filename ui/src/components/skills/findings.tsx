// What a scan found in a skill, and what is wrong with its files.
import type { Problem } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { CheckIcon } from "../icons.tsx";
import { WarningIcon } from "../parts/view_icons.tsx";
import type { Finding } from "./skills.ts";

export function Findings({ findings }: { findings: Finding[] }) {
  const texts = t.views.skills;
  if (findings.length === 0) {
    return (
      <p class="note note-good">
        <CheckIcon /> {texts.noFindings}
      </p>
    );
  }
  return (
    <ul class="findings" aria-label={texts.findings}>
      {findings.map((finding, index) => (
        <li key={index} class={`note note-${finding.severity === "block" ? "bad" : "warn"}`}>
          <WarningIcon />
          <p>
            <strong>{texts.severity[finding.severity]}.</strong> {finding.message}{" "}
            <code>{placeOf(finding.file, finding.line)}</code>
          </p>
        </li>
      ))}
    </ul>
  );
}

export function Problems({ problems }: { problems: Problem[] }) {
  return (
    <ul class="findings">
      {problems.map((problem, index) => (
        <li key={index} class="note note-bad">
          <WarningIcon />
          <p>
            {problem.field && <strong>{problem.field}: </strong>}
            {problem.message} {problem.file && <code>{placeOf(problem.file, problem.line ?? null)}</code>}
          </p>
        </li>
      ))}
    </ul>
  );
}

function placeOf(file: string, line: number | null): string {
  return line === null ? file : `${file}:${line}`;
}
