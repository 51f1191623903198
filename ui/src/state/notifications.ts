// Notifications of the browser, for those who asked for them: an answer is there, a run failed, something waits.
import { effect, signal } from "@preact/signals";
import { questionText } from "../events/question.ts";
import { t } from "../texts.ts";
import { readStored, writeStored } from "./browser_storage.ts";
import { showToast } from "./toasts.ts";
import type { Turn } from "./turn.ts";

const KEY = "caipe.notifications";

export const isSupported = typeof Notification !== "undefined";
export const isEnabled = signal<boolean>(isSupported && readStored<boolean>(KEY, false) && Notification.permission === "granted");

/** Asks the browser when they are turned on. */
export async function toggleNotifications(): Promise<void> {
  if (!isSupported) return showToast(t.notifications.denied, true);
  if (isEnabled.value) isEnabled.value = false;
  else {
    isEnabled.value = (await Notification.requestPermission()) === "granted";
    if (!isEnabled.value) showToast(t.notifications.denied, true);
  }
  writeStored(KEY, isEnabled.value);
}

export function notify(title: string, body: string): void {
  if (!isEnabled.value || document.visibilityState === "visible") return;
  const shown = new Notification(title, { body: body.slice(0, 200), icon: "/assets/icon.svg", tag: body });
  shown.onclick = () => {
    window.focus();
    shown.close();
  };
}

/** Tells when a turn that was asked here comes to rest. */
export function notifyOfTurn(turn: Turn): void {
  let before = turn.transcript.peek().state;
  const stop = effect(() => {
    const { state } = turn.transcript.value;
    if (state === before) return;
    before = state;
    const question = questionText(turn.transcript.value) || turn.question;
    if (state === "completed") notify(t.notifications.answered, question);
    if (state === "failed") notify(t.notifications.failed, question);
    if (state === "input-required") notify(t.notifications.waits, question);
    if (!turn.isOpen.peek()) queueMicrotask(() => stop());
  });
}
