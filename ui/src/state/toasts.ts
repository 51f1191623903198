// Short messages about actions: what failed, what was done.
import { signal } from "@preact/signals";

export interface Toast {
  id: number;
  text: string;
  isProblem: boolean;
}

const MAX_TOASTS = 3;
const SECONDS = 6;

export const toasts = signal<Toast[]>([]);

let count = 0;

export function showToast(text: string, isProblem = false): void {
  const toast = { id: ++count, text, isProblem };
  toasts.value = [...toasts.value, toast].slice(-MAX_TOASTS);
  setTimeout(() => closeToast(toast.id), SECONDS * 1000);
}

export function showProblem(error: unknown): void {
  showToast(error instanceof Error ? error.message : String(error), true);
}

export function closeToast(id: number): void {
  toasts.value = toasts.value.filter(toast => toast.id !== id);
}
