// The session of this browser: whether the server knows who asks.
import { signal } from "@preact/signals";

export interface Session {
  authenticated: boolean;
  login: "none" | "key";
  user: string | null;
}

/** The server refused a request for want of a session: the sign-in is shown until there is one. */
export const isSignedOut = signal(false);

let signIns = 0;

export function noteSignIn(): void {
  signIns += 1;
  isSignedOut.value = false;
}

export async function fetchWithSession(input: RequestInfo | URL, options?: RequestInit): Promise<Response> {
  const before = signIns;
  const response = await fetch(input, options);
  // A refusal of before the sign-in says nothing about the session that is there now.
  if (response.status === 401 && before === signIns) isSignedOut.value = true;
  return response;
}
