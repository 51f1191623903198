// Thumbs with a reason, kept with the run.
import { useEffect, useRef, useState } from "preact/hooks";
import { request } from "../../api/rest.ts";
import { showProblem } from "../../state/toasts.ts";
import { t } from "../../texts.ts";
import { IconButton } from "../icon_button.tsx";
import { DownIcon, UpIcon } from "../icons.tsx";

type Score = "up" | "down";

export function Feedback({ taskId }: { taskId: string }) {
  const [score, setScore] = useState<Score | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const [message, setMessage] = useState("");
  const path = `/v1/tasks/${encodeURIComponent(taskId)}/feedback`;
  const store = async (newScore: Score | null, newReason: string) => {
    const before = score;
    setScore(newScore);
    setMessage("");
    try {
      if (newScore === null) await request("DELETE", path);
      else await request("PUT", path, newReason ? { score: newScore, reason: newReason } : { score: newScore });
      if (newScore === "up" || newReason) setMessage(t.feedbackThanks);
    } catch (error) {
      setScore(before);
      showProblem(error);
    }
  };
  const rate = (newScore: Score) => {
    const isWithdrawn = score === newScore;
    setReason(newScore === "down" && !isWithdrawn ? "" : null);
    void store(isWithdrawn ? null : newScore, "");
  };
  return (
    <div class="feedback" role="group" aria-label={t.feedbackLabel}>
      <IconButton label={t.good} pressed={score === "up"} onClick={() => rate("up")}>
        <UpIcon />
      </IconButton>
      <IconButton label={t.bad} pressed={score === "down"} onClick={() => rate("down")}>
        <DownIcon />
      </IconButton>
      {reason !== null && (
        <ReasonForm
          reason={reason}
          onReason={setReason}
          onSubmit={() => {
            void store("down", reason);
            setReason(null);
          }}
        />
      )}
      <span role="status">{message}</span>
    </div>
  );
}

interface ReasonProps {
  reason: string;
  onReason(reason: string | null): void;
  onSubmit(): void;
}

function ReasonForm({ reason, onReason, onSubmit }: ReasonProps) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <form
      onSubmit={event => {
        event.preventDefault();
        onSubmit();
      }}
    >
      <input
        ref={box}
        aria-label={t.feedbackReason}
        placeholder={t.feedbackReason}
        maxLength={2000}
        value={reason}
        onInput={event => onReason(event.currentTarget.value)}
        onKeyDown={event => event.key === "Escape" && onReason(null)}
      />
      <button type="submit">{t.submit}</button>
    </form>
  );
}
