// A tool call that waits for a decision: what it does in plain words, editable arguments, and what was changed.
import { useEffect, useState } from "preact/hooks";
import { type ArgumentDrafts, listChanged, readArguments, startDrafts } from "../forms/argument_drafts.ts";
import type { Approval, JsonValue } from "../generated/events.ts";
import { formatMoment } from "../text/format.ts";
import { reveal } from "../text/reveal.ts";
import { t } from "../texts.ts";
import { ArgumentList } from "./argument_list.tsx";

type Decision = { [name: string]: JsonValue };

interface ApprovalProps {
  agent: string;
  approval: Approval;
  wrong: { [field: string]: string };
  onAnswer(decision: Decision): Promise<void>;
}

export function ApprovalCard({ agent, approval, wrong, onAnswer }: ApprovalProps) {
  const [drafts, setDrafts] = useState<ArgumentDrafts | null>(null);
  const [isSending, setSending] = useState(false);
  useEffect(() => setSending(false), [wrong]);
  const answer = (decision: Decision) => {
    setSending(true);
    const whole = approval.digest && decision["type"] !== "reject" ? { ...decision, digest: approval.digest } : decision;
    void onAnswer(whole).finally(() => setSending(false));
  };
  const title = t.approvalPlain(agent, approval.tool);
  return (
    <section class="card request approval" aria-label={title}>
      <header class="request-head">
        <h3>
          <span class="agent-name">{reveal(agent)}</span> {t.wantsToRun} <code>{reveal(approval.tool)}</code>
        </h3>
        {approval.reason && <p dir="auto">{reveal(approval.reason)}</p>}
      </header>
      <ArgumentList approval={approval} drafts={drafts} onDraft={setDrafts} wrong={wrong} />
      {wrong[""] && (
        <p class="field-error" role="alert">
          {wrong[""]}
        </p>
      )}
      {drafts === null ? (
        <Decide approval={approval} isSending={isSending} onEdit={() => setDrafts(startDrafts(approval.arguments))} onAnswer={answer} />
      ) : (
        <Edit approval={approval} drafts={drafts} isSending={isSending} onStop={() => setDrafts(null)} onAnswer={answer} />
      )}
    </section>
  );
}

interface DecideProps {
  approval: Approval;
  isSending: boolean;
  onEdit(): void;
  onAnswer(decision: Decision): void;
}

function Decide({ approval, isSending, onEdit, onAnswer }: DecideProps) {
  const [reason, setReason] = useState<string | null>(null);
  const may = (decision: Approval["allowed"][number]) => approval.allowed.includes(decision);
  if (reason !== null) {
    const reject = () => onAnswer(reason.trim() ? { type: "reject", message: reason.trim() } : { type: "reject" });
    return (
      <div class="reject">
        <input
          aria-label={t.rejectReason}
          placeholder={t.rejectReason}
          value={reason}
          onInput={event => setReason(event.currentTarget.value)}
          onKeyDown={event => event.key === "Enter" && reject()}
        />
        <div class="buttons">
          <button type="button" class="danger" disabled={isSending} onClick={reject}>
            {t.reject}
          </button>
          <button type="button" disabled={isSending} onClick={() => setReason(null)}>
            {t.cancel}
          </button>
        </div>
      </div>
    );
  }
  return (
    <div class="buttons">
      {may("approve") && (
        <button type="button" class="primary" disabled={isSending} onClick={() => onAnswer({ type: "approve" })}>
          {t.approve}
        </button>
      )}
      {may("edit") && Object.keys(approval.arguments).length > 0 && (
        <button type="button" disabled={isSending} onClick={onEdit}>
          {t.editArguments}
        </button>
      )}
      {may("reject") && (
        <button type="button" class="danger" disabled={isSending} onClick={() => setReason("")}>
          {t.reject}…
        </button>
      )}
      {approval.expires_at !== null && <span class="hint expires">{t.expires(formatMoment(approval.expires_at))}</span>}
    </div>
  );
}

interface EditProps {
  approval: Approval;
  drafts: ArgumentDrafts;
  isSending: boolean;
  onStop(): void;
  onAnswer(decision: Decision): void;
}

function Edit({ approval, drafts, isSending, onStop, onAnswer }: EditProps) {
  const edited = readArguments(approval.arguments, drafts);
  const isChanged = listChanged(approval.arguments, drafts).length > 0;
  return (
    <div class="buttons">
      <button
        type="button"
        class="primary"
        disabled={isSending || edited === null || !isChanged}
        onClick={() => onAnswer({ type: "edit", arguments: edited! })}
      >
        {t.approveEdited}
      </button>
      <button type="button" disabled={isSending} onClick={onStop}>
        {t.cancel}
      </button>
    </div>
  );
}
