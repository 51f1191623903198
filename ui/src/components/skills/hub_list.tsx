// Hubs: git repositories that skills come from.
import { useState } from "preact/hooks";
import { describeError } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { ProblemNote } from "../parts/states.tsx";
import { BranchIcon, RefreshIcon, TrashIcon } from "../parts/view_icons.tsx";
import { type Hub, refreshHub, removeHub } from "./skills.ts";

export function HubList({ hubs, onChanged }: { hubs: Hub[]; onChanged(): void }) {
  const [busy, setBusy] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const texts = t.views.skills;
  const run = async (hub: Hub, action: (hub: Hub) => Promise<unknown>) => {
    setBusy(hub.id);
    setProblem(null);
    try {
      await action(hub);
    } catch (error) {
      setProblem(describeError(error));
    }
    setBusy(null);
    onChanged();
  };
  if (hubs.length === 0) return null;
  return (
    <section>
      <h2>{texts.hubs}</h2>
      {problem !== null && <ProblemNote text={problem} />}
      <ul class="rows" aria-label={texts.hubs}>
        {hubs.map(hub => (
          <li class="row" key={hub.id}>
            <span class="row-icon">
              <BranchIcon />
            </span>
            <span class="row-main">
              <span class="row-title">{hub.url}</span>
              <span class="row-hint">
                <span>{texts.hubSkills(hub.skills)}</span>
                {hub.ref && <span>{hub.ref}</span>}
                {hub.commit && <code>{hub.commit.slice(0, 8)}</code>}
                {hub.problem && <span class="fact-bad">{hub.problem}</span>}
              </span>
            </span>
            <span class="row-side">
              <button
                type="button"
                class="small"
                disabled={busy !== null}
                aria-label={texts.refreshHub(hub.url)}
                onClick={() => void run(hub, refreshHub)}
              >
                <RefreshIcon />
              </button>
              {!hub.configured && (
                <button
                  type="button"
                  class="small danger"
                  disabled={busy !== null}
                  aria-label={texts.removeHub(hub.url)}
                  onClick={() => void run(hub, removeHub)}
                >
                  <TrashIcon />
                </button>
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
