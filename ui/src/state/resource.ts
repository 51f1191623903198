// A value that is read from the server: loading, there, or a problem for people.
import { useEffect, useState } from "preact/hooks";
import { get } from "../api/rest.ts";

export interface Resource<T> {
  value: T | null;
  problem: string | null;
  reload(): void;
}

export function useResource<T>(path: string, everySeconds: number | null = null): Resource<T> {
  const [value, setValue] = useState<T | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [count, setCount] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    get<T>(path).then(
      loaded => {
        if (!isCurrent) return;
        setValue(loaded);
        setProblem(null);
      },
      (error: unknown) => {
        if (isCurrent) setProblem(error instanceof Error ? error.message : String(error));
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [path, count]);
  useEffect(() => {
    if (everySeconds === null) return undefined;
    const timer = setInterval(() => setCount(current => current + 1), everySeconds * 1000);
    return () => clearInterval(timer);
  }, [everySeconds]);
  return { value, problem, reload: () => setCount(count + 1) };
}
