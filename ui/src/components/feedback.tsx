// Thumbs with a reason, kept with the run.
import { useState } from "preact/hooks";
import { request } from "../api/rest.ts";
import { t } from "../texts.ts";
import { DownIcon, UpIcon } from "./icons.tsx";

type Score = "up" | "down";

export function Feedback({ taskId }: { taskId: string }) {
  const [score, setScore] = useState<Score | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const [message, setMessage] = useState("");
  const store = async (newScore: Score, newReason?: string) => {
    setScore(newScore);
    try {
      const body = newReason ? { score: newScore, reason: newReason } : { score: newScore };
      await request("PUT", `/v1/tasks/${encodeURIComponent(taskId)}/feedback`, body);
      setMessage(newReason === undefined && newScore === "down" ? "" : t.feedbackThanks);
    } catch (error) {
      setMessage(String(error instanceof Error ? error.message : error));
    }
  };
  const rateDown = () => {
    setReason("");
    void store("down");
  };
  const submitReason = (event: Event) => {
    event.preventDefault();
    void store("down", reason ?? "");
    setReason(null);
  };
  return (
    <div class="feedback" role="group" aria-label="Feedback">
      <button type="button" class="quiet" aria-pressed={score === "up"} title={t.good} onClick={() => void store("up")}>
        <UpIcon />
        <span class="visually-hidden">{t.good}</span>
      </button>
      <button type="button" class="quiet" aria-pressed={score === "down"} title={t.bad} onClick={rateDown}>
        <DownIcon />
        <span class="visually-hidden">{t.bad}</span>
      </button>
      {reason !== null && (
        <form onSubmit={submitReason}>
          <input
            aria-label={t.feedbackReason}
            placeholder={t.feedbackReason}
            maxLength={2000}
            value={reason}
            onInput={event => setReason(event.currentTarget.value)}
          />
          <button type="submit">{t.submit}</button>
        </form>
      )}
      <span role="status">{message}</span>
    </div>
  );
}
