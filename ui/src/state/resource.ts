// A value that is read from the server: loading, there, or a problem for people; polled while it is looked at.
import { useEffect, useRef, useState } from "preact/hooks";
import { describeError, get } from "../api/rest.ts";
import { Poll } from "./polling.ts";

export interface Resource<T> {
  value: T | null;
  problem: string | null;
  isLoading: boolean;
  reload(): void;
}

/** The value at a path (null: none yet). What was loaded stays until something else is there, so nothing jumps. */
export function useResource<T>(path: string | null, everySeconds: number | null = null): Resource<T> {
  const [value, setValue] = useState<T | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isLoading, setLoading] = useState(path !== null);
  const poll = useRef<Poll | null>(null);
  const shown = useRef("");
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    setLoading(true);
    const load = async () => {
      try {
        const loaded = await get<T>(path, { signal: abort.signal });
        if (abort.signal.aborted) return false;
        const text = JSON.stringify(loaded);
        if (text !== shown.current) setValue(loaded); // the same again draws nothing
        shown.current = text;
        setProblem(null);
        return true;
      } catch (error) {
        if (!abort.signal.aborted) setProblem(describeError(error));
        return false;
      } finally {
        if (!abort.signal.aborted) setLoading(false);
      }
    };
    const current = new Poll(load, everySeconds);
    poll.current = current;
    return () => {
      abort.abort();
      current.stop();
    };
  }, [path, everySeconds]);
  return { value, problem, isLoading, reload: () => poll.current?.now() };
}
