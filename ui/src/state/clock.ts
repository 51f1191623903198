// The time of day for durations that run: one timer, only while something shows one.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

const now = signal(Date.now());
let users = 0;
let timer = 0;

/** The time now, redrawn twice a second; a fixed one while nothing runs. */
export function useNow(isRunning: boolean): number {
  useEffect(() => {
    if (!isRunning) return undefined;
    now.value = Date.now();
    if (users++ === 0) timer = window.setInterval(() => (now.value = Date.now()), 500);
    return () => {
      if (--users === 0) clearInterval(timer);
    };
  }, [isRunning]);
  return isRunning ? now.value : 0;
}
