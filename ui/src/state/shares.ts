// Links to read a conversation.
import { get, request } from "../api/rest.ts";

export interface Share {
  token?: string;
  path?: string;
  expires?: string | null;
}

export function createShare(contextId: string): Promise<{ token: string; path: string }> {
  return request("POST", "/v1/shares", { context_id: contextId });
}

export async function listShares(contextId: string): Promise<Share[]> {
  const query = new URLSearchParams({ context_id: contextId });
  return (await get<{ shares: Share[] }>(`/v1/shares?${query}`)).shares;
}

export function deleteShare(token: string): Promise<void> {
  return request("DELETE", `/v1/shares/${encodeURIComponent(token)}`);
}
