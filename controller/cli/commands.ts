import type { Command } from './command.js'

/**
 * A command or a group of commands. To keep processes small, a module is loaded only to run its command or show
 * its help.
 */
export type Entry = { name: string; summary: string } & (
  | {
      load: () => Promise<{ command: Command }>
      /** What follows the first argument, options included, is a command line of its own. */
      passThroughOptions?: true
      /** It runs if its group is called without a command. */
      isDefault?: true
    }
  | { commands: readonly Entry[] }
)

/** Every command, in the order in which help lists them. */
export const commands: readonly Entry[] = [
  {
    name: 'up',
    summary: 'run everything on this machine: PostgreSQL, the APIs, workers, health manager',
    load: () => import('./commands/up/up.js'),
  },
  {
    name: 'down',
    summary: 'stop the controllers; amphorae keep serving',
    load: () => import('./commands/down.js'),
  },
  {
    name: 'demo',
    summary: 'create a load balancer with two web servers and send requests; starts Krater if it is not running',
    load: () => import('./commands/demo/demo.js'),
  },
  {
    name: 'doctor',
    summary: 'check packages, kernel, ports, clock, database, heartbeats and amphorae',
    load: () => import('./commands/doctor/doctor.js'),
  },
  {
    name: 'explain',
    summary: 'say why a load balancer, or an object of it, is down, and what to do',
    load: () => import('./commands/explain/explain.js'),
  },
  {
    name: 'status',
    summary: 'show all controller hosts and their processes: versions, leases, last signs of life',
    load: () => import('./commands/status.js'),
  },
  {
    name: 'controller',
    summary: 'manage the hosts on which controllers run',
    commands: [
      {
        name: 'add',
        summary: 'make the bundle with which another machine becomes a controller host',
        load: () => import('./commands/controller/add.js'),
      },
      {
        name: 'list',
        summary: 'list the controller hosts',
        load: () => import('./commands/controller/list.js'),
      },
      {
        name: 'remove',
        summary: 'remove a controller host that is stopped or gone',
        load: () => import('./commands/controller/remove.js'),
      },
    ],
  },
  {
    name: 'ovn',
    summary: 'compare networks and load balancers in OVN with the tables',
    commands: [
      {
        name: 'check',
        summary: 'show what differs; changes nothing',
        load: () => import('./commands/ovn/check.js'),
      },
      {
        name: 'sync',
        summary: 'repair what differs',
        load: () => import('./commands/ovn/sync.js'),
      },
    ],
  },
  {
    name: 'image',
    summary: 'manage the images that amphorae run from',
    commands: [
      {
        name: 'import',
        summary: 'take an image that `npm run images` has built',
        load: () => import('./commands/image/import.js'),
      },
      { name: 'list', summary: 'list the images', load: () => import('./commands/image/list.js') },
      { name: 'remove', summary: 'remove an image', load: () => import('./commands/image/remove.js') },
    ],
  },
  {
    name: 'settings',
    summary:
      'list every setting: default, value in effect, meaning and environment variable; or write some: NAME=VALUE',
    load: () => import('./commands/settings.js'),
  },
  { name: 'api', summary: 'run only the APIs, until SIGTERM', load: () => import('./processes/api.js') },
  { name: 'worker', summary: 'run only a worker, until SIGTERM', load: () => import('./processes/worker.js') },
  {
    name: 'health-manager',
    summary: 'run only a health manager, until SIGTERM',
    load: () => import('./processes/health-manager.js'),
  },
  {
    name: 'keystone-listener',
    summary: 'erase data of projects that an external identity service deletes, until SIGTERM',
    load: () => import('./processes/keystone-listener.js'),
  },
  {
    name: 'key-manager',
    summary: 'manage keys, certificate authorities and the audit log',
    commands: [
      {
        name: 'worker',
        summary: 'run only a key manager worker, until SIGTERM',
        load: () => import('./processes/key-manager-worker.js'),
      },
      {
        name: 'acme-validator',
        summary: 'run only a validator of ACME challenges, until SIGTERM',
        load: () => import('./processes/acme-validator.js'),
      },
      {
        name: 'sync-projects',
        summary: 'find projects that the identity service no longer has, and erase their data',
        load: () => import('./commands/key-manager/sync-projects.js'),
      },
      {
        name: 'clean',
        summary: 'purge deleted objects, and audit records past their retention',
        load: () => import('./commands/key-manager/clean.js'),
      },
      {
        name: 'audit',
        summary: 'verify, accept or export the audit log, which records who used which secret',
        commands: [
          {
            name: 'verify',
            summary: 'check that no record was changed, inserted or removed',
            load: () => import('./commands/key-manager/audit/verify.js'),
          },
          {
            name: 'accept',
            summary: 'after a restore: accept the restored chain, and replace the end that this machine kept',
            load: () => import('./commands/key-manager/audit/accept.js'),
          },
          {
            name: 'export',
            summary: 'write the records as JSON lines',
            load: () => import('./commands/key-manager/audit/export.js'),
          },
        ],
      },
      {
        name: 'rotate-master-key',
        summary: 'replace the master key, which wraps the project keys, without interruption',
        load: () => import('./commands/key-manager/rotate-master-key.js'),
      },
      {
        name: 'rotate-project-keys',
        summary: 'replace project keys and re-encrypt the stored data, without interruption',
        load: () => import('./commands/key-manager/rotate-project-keys.js'),
      },
      {
        name: 'ca',
        summary: 'list certificate authorities and their certificates, and revoke certificates',
        commands: [
          {
            name: 'list',
            summary: 'list all certificate authorities',
            load: () => import('./commands/key-manager/ca/list.js'),
          },
          {
            name: 'certificates',
            summary: 'list the certificates that a certificate authority has issued',
            load: () => import('./commands/key-manager/ca/certificates.js'),
          },
          {
            name: 'revoke',
            summary: 'put a certificate on the revocation list permanently',
            load: () => import('./commands/key-manager/ca/revoke.js'),
          },
        ],
      },
      {
        name: 'hsm',
        summary: 'create and check master keys in the PKCS#11 token',
        commands: [
          {
            name: 'create-master-key',
            summary: 'create a master key that never leaves the token',
            load: () => import('./commands/key-manager/hsm/create-master-key.js'),
          },
          {
            name: 'check',
            summary: 'show the attributes of the master key and test it',
            load: () => import('./commands/key-manager/hsm/check.js'),
          },
        ],
      },
    ],
  },
  {
    name: 'certificates',
    summary: 'list and order the certificates of load balancers; give ACME clients certificates of the internal CA',
    commands: [
      {
        name: 'list',
        summary: 'list names, issuer, end, next renewal and last proof of the certificates in use',
        isDefault: true,
        load: () => import('./commands/certificates/list.js'),
      },
      {
        name: 'order',
        summary: 'order a certificate that renews itself, and print its reference for a listener',
        load: () => import('./commands/certificates/order.js'),
      },
      {
        name: 'renew',
        summary: 'renew a certificate now, long before it is due',
        load: () => import('./commands/certificates/renew.js'),
      },
      {
        name: 'rollback',
        summary: 'bring back the certificate and key from before the last renewal',
        load: () => import('./commands/certificates/rollback.js'),
      },
      {
        name: 'acme-account',
        summary: 'manage the keys with which ACME clients create accounts of the project',
        commands: [
          {
            name: 'create',
            summary: 'create a key, and print what an ACME client needs',
            load: () => import('./commands/certificates/acme-account/create.js'),
          },
          {
            name: 'list',
            summary: 'list the keys of the project',
            load: () => import('./commands/certificates/acme-account/list.js'),
          },
          {
            name: 'revoke',
            summary: 'revoke a key and all accounts that it created',
            load: () => import('./commands/certificates/acme-account/revoke.js'),
          },
        ],
      },
    ],
  },
  {
    name: 'db',
    summary: 'prepare the database',
    commands: [
      {
        name: 'migrate',
        summary: 'create or update the tables, and create what a first start needs',
        load: () => import('./commands/database-migrate.js'),
      },
    ],
  },
  {
    name: 'network',
    summary:
      'give programs of this machine a place on a network; open its ports to load balancers; run the network worker',
    commands: [
      {
        name: 'worker',
        summary: 'run only a network worker, until SIGTERM: routers, floating IPs, security groups',
        load: () => import('./processes/network-worker.js'),
      },
      {
        name: 'attach',
        summary: 'give a program, namespace or container an interface and an address on a network',
        load: () => import('./commands/network/attach.js'),
      },
      {
        name: 'exec',
        summary: 'run a program at the place of an attachment',
        load: () => import('./commands/network/exec.js'),
        passThroughOptions: true,
      },
      {
        name: 'address',
        summary: 'print the address of an attachment',
        load: () => import('./commands/network/address.js'),
      },
      { name: 'list', summary: 'list all attachments', load: () => import('./commands/network/list.js') },
      {
        name: 'detach',
        summary: 'remove an attachment: interface, port, and the programs in the namespace that Krater created',
        load: () => import('./commands/network/detach.js'),
      },
      {
        name: 'open',
        summary: 'let load balancers use ports of this host as members; without a port, list those that are open',
        load: () => import('./commands/network/open.js'),
      },
      {
        name: 'close',
        summary: 'close ports of this host again',
        load: () => import('./commands/network/close.js'),
      },
    ],
  },
  {
    name: 'amphora',
    summary: 'inspect the machines that carry the load balancers',
    commands: [
      { name: 'list', summary: 'list all amphorae', load: () => import('./commands/amphora/list.js') },
      {
        name: 'show',
        summary: 'show an amphora: database row, machine, heartbeats and agent',
        load: () => import('./commands/amphora/show.js'),
      },
      {
        name: 'enroll',
        summary: 'make a host that runs already one that carries amphorae',
        load: () => import('./commands/amphora/enrolled/enroll.js'),
      },
      {
        name: 'hosts',
        summary: 'list all enrolled hosts',
        load: () => import('./commands/amphora/enrolled/hosts.js'),
      },
      {
        name: 'retire',
        summary: 'undo the enrolment of a host',
        load: () => import('./commands/amphora/enrolled/retire.js'),
      },
      {
        name: 'ssh',
        summary: 'open a root shell on an amphora',
        load: () => import('./commands/amphora/ssh.js'),
        passThroughOptions: true,
      },
      {
        name: 'logs',
        summary: 'print the logs of its agent, HAProxy and keepalived',
        load: () => import('./commands/amphora/logs.js'),
      },
      {
        name: 'upgrade',
        summary:
          'bring amphorae to this version’s agent and the newest image, a few at a time, without interrupting traffic',
        load: () => import('./commands/amphora/upgrade/upgrade.js'),
      },
      {
        name: 'support-bundle',
        summary: 'collect what is needed to diagnose a fault into one file, without secrets',
        load: () => import('./commands/amphora/support-bundle.js'),
      },
    ],
  },
]
