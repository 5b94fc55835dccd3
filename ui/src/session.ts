// Signing in and out.

import { Problem, ask, get, me, messageOf, send } from "./api";
import { startLive, stopLive } from "./live";
import type { Me } from "./types";

/** Looks who is signed in, when the page is opened. */
export async function lookWho(): Promise<string | undefined> {
  try {
    me.value = await get<Me>("/me");
    void startLive();
    return undefined;
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return undefined;
    return messageOf(error);
  }
}

export async function signIn(name: string, password: string): Promise<void> {
  const { user } = await send<{ user: Me }>("POST", "/session", { name, password });
  // The token against forged requests comes with the full answer.
  me.value = user.csrf ? user : await get<Me>("/me");
  void startLive();
}

export async function signOut(): Promise<void> {
  stopLive();
  try {
    await ask("/session", { method: "DELETE" });
  } finally {
    me.value = null;
  }
}

/** What I may do in a virtual cluster. */
export function mayRun(user: Me, vc: string): boolean {
  return user.admin || ["member", "operator", "administrator"].includes(user.roles?.[vc] ?? "");
}

/** Whether a job's owner, or somebody who looks after its virtual cluster. */
export function mayTouch(user: Me | null | undefined, job: { user: string; tenant: string }): boolean {
  if (!user) return false;
  return user.admin || user.name === job.user || ["operator", "administrator"].includes(user.roles?.[job.tenant] ?? "");
}
