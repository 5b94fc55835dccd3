// What the API says. Times are microseconds since 1970; spans that end in _s are seconds.

export type Time = number;

export type Role = "viewer" | "member" | "operator" | "administrator";

export interface Me {
  name: string;
  admin: boolean;
  email?: string | null;
  roles?: Record<string, Role>;
  via?: "session" | "token";
  csrf?: string | null;
  must_change_password?: boolean;
}

export interface Info {
  name: string;
  version: string;
  sign_in: string[];
  oidc_url: string | null;
}

/** How one may sign in. */
export interface SignInOptions {
  password: boolean;
  oidc: { label: string; url: string } | null;
}

export interface Seats {
  node: string;
  gpus: number[];
}

export interface Attempt {
  launch: number;
  since: Time;
  running_since: Time | null;
  until: Time | null;
  seats: Seats[];
  tasks: string[];
  end: string | null;
  sharing: string;
  last_words?: string;
}

export interface Steps {
  step: number;
  total: number;
  step_time: Time;
  checkpoint: number;
}

export interface Instance {
  index: number;
  node: string | null;
  gpus: number[] | number;
  state: string;
  exit_code: number | null;
}

export interface Job {
  id: number;
  name: string;
  user: string;
  tenant: string;
  state: string;
  detail: string;
  since: Time;
  over: boolean;
  exit_code: number | null;
  gpus: number;
  priority: number;
  submitted: Time;
  started: Time | null;
  ended: Time | null;
  seats: Seats[];
  steps: Steps | null;
  gpu_seconds: number;
  labels: Record<string, string>;
  launches: number;
  attempts?: Attempt[];
  request?: Record<string, unknown>;
  roles?: { name: string; instances: Instance[] }[];
  hint?: string | null;
  text?: string | null;
}

export interface JobPage {
  jobs: Job[];
  next: string | number | null;
  total?: number;
}

export interface Eta {
  p50: Time;
  p90: Time;
  p50_s: number;
  p90_s: number;
  samples: number;
  based_on: string;
}

export interface Why {
  sentence: string;
  reasons: string[];
  ahead: number;
  jobs_ahead?: { id: number; name: string; user: string; gpus: number; state: string }[];
  instead?: { change: string; to?: string; sentence: string; starts_now: boolean }[];
  eta?: Eta | null;
  eta_hidden?: string;
}

export interface Outlook {
  starts_now: boolean;
  seats: Seats[];
  stops: number[];
  why: Why;
  eta?: Eta | null;
}

export interface Submitted {
  id?: number | null;
  last?: number | null;
  outlook?: Outlook | null;
  ignored?: string[];
  job?: Record<string, unknown>;
}

export interface Node {
  name: string;
  state: string;
  detail: string;
  since: Time;
  connected: boolean;
  gpu_type: string;
  gpus: number;
  used_gpus: number;
  cpu_milli: number;
  memory_mib: number;
  rack: string;
  address: string;
  jobs: number[];
  slots?: { index: number; jobs: number[]; vc: string | null; health: "ok" | "bad" }[];
}

export interface Cluster {
  now: Time;
  policy: string;
  parts: Record<string, string>;
  clock: string;
  paused: boolean;
  nodes: number;
  gpus: number;
  used_gpus: number;
  jobs: Record<string, number>;
  trouble: string | null;
  last_event: number;
  version: string;
}

export interface ClusterEvent {
  number: number;
  at: Time;
  job?: number;
  kind: string;
  text: string;
}

export interface Cell {
  id: string;
  type: string;
  level: number;
  gpus: number;
  used_gpus: number;
  /** Of those, held by others. */
  lent_gpus?: number;
  health: "ok" | "bad";
  node: string | null;
  job: number | null;
  children?: Cell[];
}

export interface Vc {
  name: string;
  guaranteed_gpus: number;
  most_borrowed: number | null;
  /** Held by jobs that were promised them; what is borrowed comes on top. */
  used_gpus: number;
  borrowed_gpus: number;
  lent_gpus: number;
  running_jobs: number;
  waiting_jobs: number;
  user_cap_gpus: number | null;
  max_priority: number | null;
  everyone: "none" | "viewer" | "member";
  /** The order of its own jobs in line; none: the policy's. */
  order?: string | null;
  role: Role | null;
  cells?: Cell[];
}

export interface Vcs {
  mode: "open" | "quota" | "cells";
  gpus: number;
  vcs: Vc[];
}

export interface VcDiff {
  changes: { vc: string; field: string; before: unknown; after: unknown }[];
  effects: string[];
  stops: number[];
  starts: number[];
  refused: string | null;
}

export interface Queued {
  id: number;
  name: string;
  user: string;
  tenant: string;
  gpus: number;
  priority: number;
  since: Time;
  ahead: number;
  reason: string;
}

export interface UsageRow {
  day: string;
  user: string;
  tenant: string;
  gpu_hours: number;
  jobs: number;
}

export interface LogPiece {
  node: string;
  launch: number;
  data?: string;
  offset: number;
  error?: string | null;
}

export interface Found {
  node: string;
  offset: number;
  line: string;
}

export interface ProgressPoint {
  at: Time;
  step: number;
  total: number;
  step_time_us: number;
  checkpoint: number;
}

export interface Parameter {
  name: string;
  type: "text" | "number" | "choice" | "flag";
  default?: string | number | boolean | null;
  choices?: string[] | null;
  help?: string;
  min?: number | null;
  max?: number | null;
}

export interface Template {
  name: string;
  title: string;
  description: string;
  parameters: Parameter[];
  text: string;
}

export interface UserRow {
  name: string;
  admin: boolean;
  email?: string | null;
  roles?: Record<string, Role>;
  has_password?: boolean;
  tokens?: number;
}

export interface TokenRow {
  id: string | number;
  label: string;
  scope: "read" | "jobs" | "all";
  /** Of a browser that has signed in. */
  session?: boolean;
  created: Time;
  expires: Time | null;
  last_used?: Time | null;
}

export interface Notify {
  email: boolean;
  webhook: string;
  on: string[];
  /** 0 is as the server has it, here and below. */
  pending_s: number;
  low_gpu_percent?: number;
  /** What is posted is signed with it. */
  secret?: string;
}

/** Whether a try got through. */
export interface NotifyTried {
  webhook: { ok: boolean; detail: string } | null;
  email: { ok: boolean; detail: string } | null;
}

/** How busy a job's GPUs are, in percent. */
export interface GpuUse {
  known: boolean;
  note: string;
  mean: GpuPoint[];
  gpus: { node: string; gpu: number; points: GpuPoint[] }[];
}

export interface GpuPoint {
  at: Time;
  busy: number;
  memory_mib: number | null;
}

export interface AuditPage {
  entries: { seq: number; at: Time; who: string; what: string; target: string; before: unknown; after: unknown }[];
  next: number | null;
}

export interface PolicyInfo {
  name: string;
  what: string;
  paper: string;
  key: string;
}
