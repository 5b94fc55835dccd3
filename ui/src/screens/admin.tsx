// Administration: users, nodes, policy and audit log.

import { me } from "../api";
import { Empty, PageHeader } from "../parts/basics";
import { Tabs, useTab } from "../parts/tabs";
import { Audit } from "./admin-audit";
import { Nodes } from "./admin-nodes";
import { Policy } from "./admin-policy";
import { Users } from "./admin-users";

const TABS: [string, string][] = [
  ["users", "Users"],
  ["nodes", "Nodes"],
  ["policy", "Policy"],
  ["audit", "Audit"],
];

export function Admin() {
  const tab = useTab(TABS);
  if (!me.value?.admin) return <Empty title="Only administrators can see this page" whole />;
  return (
    <>
      <PageHeader title="Administration">
        <a class="button" href="/vcs">
          Virtual clusters
        </a>
        <a class="button" href="/me">
          My tokens
        </a>
      </PageHeader>
      <Tabs label="Sections of administration" of={TABS} current={tab} />
      {tab === "users" && <Users />}
      {tab === "nodes" && <Nodes />}
      {tab === "policy" && <Policy />}
      {tab === "audit" && <Audit />}
    </>
  );
}
