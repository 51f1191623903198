// A tool call that waits for a decision: what it does in plain words, editable arguments, and what was changed.
import { useEffect, useState } from "preact/hooks";
import type { Approval, JsonValue } from "../generated/events.ts";
import { t } from "../texts.ts";
import { formatMoment } from "../text/format.ts";
import { reveal } from "../text/reveal.ts";

interface ApprovalProps {
  agent: string;
  approval: Approval;
  wrong: { [field: string]: string };
  onAnswer(decision: { [name: string]: JsonValue }): Promise<void>;
}

type Drafts = { [name: string]: string };

export function ApprovalCard({ agent, approval, wrong, onAnswer }: ApprovalProps) {
  const [drafts, setDrafts] = useState<Drafts | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const [isSending, setSending] = useState(false);
  useEffect(() => setSending(false), [wrong]);
  const answer = (decision: { [name: string]: JsonValue }) => {
    setSending(true);
    void onAnswer(approval.digest ? { ...decision, digest: approval.digest } : decision);
  };
  const may = (decision: Approval["allowed"][number]) => approval.allowed.includes(decision);
  const edited = drafts === null ? null : readDrafts(approval, drafts);
  return (
    <section class="card request" aria-label={t.approvalWants(agent, approval.tool)}>
      <h3>{t.approvalWants(agent, approval.tool)}</h3>
      {approval.reason && <p>{approval.reason}</p>}
      <Arguments approval={approval} drafts={drafts} onDraft={setDrafts} wrong={wrong} />
      {wrong[""] && (
        <p class="field-error" role="alert">
          {wrong[""]}
        </p>
      )}
      {reason !== null && (
        <input
          aria-label={t.rejectReason}
          placeholder={t.rejectReason}
          value={reason}
          onInput={event => setReason(event.currentTarget.value)}
        />
      )}
      <div class="buttons">
        {drafts === null && reason === null && may("approve") && (
          <button type="button" class="primary" disabled={isSending} onClick={() => answer({ type: "approve" })}>
            {t.approve}
          </button>
        )}
        {drafts === null && reason === null && may("edit") && (
          <button type="button" disabled={isSending} onClick={() => setDrafts(startDrafts(approval))}>
            {t.editArguments}
          </button>
        )}
        {drafts !== null && (
          <>
            <button
              type="button"
              class="primary"
              disabled={isSending || edited === null}
              onClick={() => answer({ type: "edit", arguments: edited! })}
            >
              {t.approveEdited}
            </button>
            <button type="button" disabled={isSending} onClick={() => setDrafts(null)}>
              {t.cancel}
            </button>
          </>
        )}
        {drafts === null && may("reject") && (
          <button
            type="button"
            class="danger"
            disabled={isSending}
            onClick={() => (reason === null ? setReason("") : answer({ type: "reject", message: reason }))}
          >
            {t.reject}
          </button>
        )}
      </div>
      {approval.expires_at !== null && <p class="hint">{t.expires(formatMoment(approval.expires_at))}</p>}
    </section>
  );
}

interface ArgumentsProps {
  approval: Approval;
  drafts: Drafts | null;
  onDraft(drafts: Drafts): void;
  wrong: { [field: string]: string };
}

function Arguments({ approval, drafts, onDraft, wrong }: ArgumentsProps) {
  return (
    <dl class="arguments">
      {Object.entries(approval.arguments).map(([name, value]) => {
        const original = show(value);
        const draft = drafts?.[name] ?? original;
        const isChanged = draft !== original;
        return (
          <div key={name} class={isChanged ? "changed" : ""}>
            <dt>
              {reveal(name)} {isChanged && <span class="tag">{t.changed}</span>}
            </dt>
            <dd>
              {isChanged && <del>{reveal(original)}</del>}
              {drafts === null ? (
                <pre tabIndex={0}>{reveal(original)}</pre>
              ) : (
                <textarea
                  aria-label={name}
                  rows={Math.min(10, draft.split("\n").length)}
                  value={draft}
                  onInput={event => onDraft({ ...drafts, [name]: event.currentTarget.value })}
                />
              )}
              {drafts !== null && readDraft(value, draft) === undefined && <p class="field-error">{t.notJson}</p>}
              {wrong[name] && (
                <p class="field-error" role="alert">
                  {wrong[name]}
                </p>
              )}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function show(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function startDrafts(approval: Approval): Drafts {
  return Object.fromEntries(Object.entries(approval.arguments).map(([name, value]) => [name, show(value)]));
}

/** A text stays a text; anything else is JSON. */
function readDraft(original: JsonValue, draft: string): JsonValue | undefined {
  if (typeof original === "string") return draft;
  try {
    return JSON.parse(draft) as JsonValue;
  } catch {
    return undefined;
  }
}

function readDrafts(approval: Approval, drafts: Drafts): { [name: string]: JsonValue } | null {
  const values: { [name: string]: JsonValue } = {};
  for (const [name, original] of Object.entries(approval.arguments)) {
    const value = readDraft(original, drafts[name] ?? "");
    if (value === undefined) return null;
    values[name] = value;
  }
  return values;
}
