// Light, dark, or as the system is; kept in this browser.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "caipe.theme";

export const theme = signal<Theme>(readTheme());

function readTheme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}

effect(() => {
  localStorage.setItem(KEY, theme.value);
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
});
