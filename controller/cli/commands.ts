import type { Command } from './command.js'

/** A command or a group of commands. A module is loaded only when its command runs or its help is shown, which keeps processes small. */
export type Entry = { name: string; summary: string } & (
  | { load: () => Promise<{ command: Command }> }
  | { commands: readonly Entry[] }
)

/** Every command, in the order of the help. */
export const commands: readonly Entry[] = [
  {
    name: 'up',
    summary: 'start everything on this machine: PostgreSQL, the APIs, workers, health manager',
    load: () => import('./commands/up/up.js'),
  },
  {
    name: 'down',
    summary: 'stop the controllers; amphorae keep serving',
    load: () => import('./commands/down.js'),
  },
  {
    name: 'demo',
    summary: 'start it when it does not run, put two web servers behind a load balancer, and send requests',
    load: () => import('./commands/demo/demo.js'),
  },
  {
    name: 'doctor',
    summary: 'check packages, kernel, ports, clock, database, heartbeats and amphorae',
    load: () => import('./commands/doctor/doctor.js'),
  },
  {
    name: 'settings',
    summary: 'every setting, with its default, its meaning and its environment variable',
    load: () => import('./commands/settings.js'),
  },
  { name: 'api', summary: 'the APIs alone, until SIGTERM', load: () => import('./processes/api.js') },
  { name: 'worker', summary: 'one worker alone, until SIGTERM', load: () => import('./processes/worker.js') },
  {
    name: 'health-manager',
    summary: 'one health manager alone, until SIGTERM',
    load: () => import('./processes/health-manager.js'),
  },
  {
    name: 'keystone-listener',
    summary: 'one listener for projects that an external identity service deletes, until SIGTERM',
    load: () => import('./processes/keystone-listener.js'),
  },
  {
    name: 'key-manager',
    summary: 'secrets, their keys and what watches over them',
    commands: [
      {
        name: 'worker',
        summary: 'one worker of the key manager alone, until SIGTERM',
        load: () => import('./processes/key-manager-worker.js'),
      },
      {
        name: 'sync-projects',
        summary: 'find projects that the identity service has no more, and erase what is held for them',
        load: () => import('./commands/key-manager/sync-projects.js'),
      },
      {
        name: 'clean',
        summary: 'purge what is left of deleted objects, and audit records past their retention',
        load: () => import('./commands/key-manager/clean.js'),
      },
      {
        name: 'audit',
        summary: 'the record of who used which secret',
        commands: [
          {
            name: 'verify',
            summary: 'check that no record was changed, put in or taken away',
            load: () => import('./commands/key-manager/audit/verify.js'),
          },
          {
            name: 'accept',
            summary: 'after a restore: take the chain as it is, whatever this machine kept of its end',
            load: () => import('./commands/key-manager/audit/accept.js'),
          },
          {
            name: 'export',
            summary: 'the records as lines of JSON',
            load: () => import('./commands/key-manager/audit/export.js'),
          },
        ],
      },
      {
        name: 'rotate-master-key',
        summary: 'replace the key that wraps the keys of projects, while all goes on being used',
        load: () => import('./commands/key-manager/rotate-master-key.js'),
      },
      {
        name: 'rotate-project-keys',
        summary: 'replace keys of projects and encrypt anew what is stored, while all goes on being used',
        load: () => import('./commands/key-manager/rotate-project-keys.js'),
      },
      {
        name: 'ca',
        summary: 'the certificate authorities',
        commands: [
          {
            name: 'list',
            summary: 'all certificate authorities',
            load: () => import('./commands/key-manager/ca/list.js'),
          },
          {
            name: 'certificates',
            summary: 'what it has issued',
            load: () => import('./commands/key-manager/ca/certificates.js'),
          },
          {
            name: 'revoke',
            summary: 'put a certificate on the revocation list, for good',
            load: () => import('./commands/key-manager/ca/revoke.js'),
          },
        ],
      },
      {
        name: 'hsm',
        summary: 'the PKCS#11 token that holds the keys',
        commands: [
          {
            name: 'create-master-key',
            summary: 'make a master key in the token that never leaves it',
            load: () => import('./commands/key-manager/hsm/create-master-key.js'),
          },
          {
            name: 'check',
            summary: 'show the attributes of the master key, and that it works',
            load: () => import('./commands/key-manager/hsm/check.js'),
          },
        ],
      },
    ],
  },
  {
    name: 'db',
    summary: 'the database',
    commands: [
      {
        name: 'migrate',
        summary: 'make or update the tables, and what a first start needs',
        load: () => import('./commands/database-migrate.js'),
      },
    ],
  },
  {
    name: 'amphora',
    summary: 'the machines that carry the load balancers',
    commands: [
      { name: 'list', summary: 'all amphorae', load: () => import('./commands/amphora/list.js') },
      {
        name: 'show',
        summary: 'its row, machine, heartbeats and agent',
        load: () => import('./commands/amphora/show.js'),
      },
      { name: 'ssh', summary: 'a root shell on it', load: () => import('./commands/amphora/ssh.js') },
      {
        name: 'logs',
        summary: 'what its agent, HAProxy and keepalived have logged',
        load: () => import('./commands/amphora/logs.js'),
      },
      {
        name: 'support-bundle',
        summary: 'one file with all that is needed to understand a fault; no secrets',
        load: () => import('./commands/amphora/support-bundle.js'),
      },
    ],
  },
]
