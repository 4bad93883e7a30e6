import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import type { ApiClient } from '../../../controller/cli/api-client.js'
import { createKrater, type Krater, until } from './krater.js'
import { type Place, settle } from './ovn-place.js'
import type { StandingOvn } from './standing-ovn/standing-ovn.js'

const run = promisify(execFile)

/** What tests ask of the APIs. */
export type OvnRequests = {
  lb: <T = Record<string, unknown>>(method: string, path: string, body?: unknown) => Promise<T>
  net: <T = Record<string, unknown>>(method: string, path: string, body?: unknown) => Promise<T>
  /** Waits until no change of a load balancer is under way. @throws Error if one failed */
  settled: (id: string) => Promise<void>
  /** Deletes a load balancer with all below it, and waits until it is gone. */
  remove: (id: string) => Promise<void>
}

/** A Krater with networks in OVN, and what tests do with it. */
export type OvnKrater = OvnRequests & {
  krater: Krater
  api: ApiClient
  /** Attaches a namespace to a network, with a program in it that serves on port 8080 and asks others. */
  settle: (network: string, name: string) => Promise<Place>
  /** A program of OVN's on one of its databases, such as `nb('lb-list')`. */
  nb: (...words: string[]) => Promise<string>
  sb: (...words: string[]) => Promise<string>
}

/** It ends with the test. @param standing the OVN that it uses, instead of one of its own */
export async function startOvnKrater(
  t: Test,
  settings: Readonly<Record<string, string>> = {},
  standing?: StandingOvn,
): Promise<OvnKrater> {
  const krater = await createKrater(t, {
    KRATER_NETWORK_DRIVER: 'ovn',
    KRATER_COMPUTE_WARM_AMPHORAE: '0',
    ...standing?.settings,
    ...settings,
  })
  await krater.up()
  const api = await krater.api()
  const asking =
    (program: string, database: string) =>
    async (...words: string[]): Promise<string> => {
      const where = `--db=unix:${join(krater.directory, 'ovn', `${database}.socket`)}`
      return (await run(program, [where, ...words], { timeout: 20_000 })).stdout
    }

  return {
    ...{ krater, api, ...ovnRequests(api) },
    nb: standing?.nb ?? asking('ovn-nbctl', 'northbound'),
    sb: standing?.sb ?? asking('ovn-sbctl', 'southbound'),
    settle: (network, name) => settle(t, krater, network, name),
  }
}

export function ovnRequests(api: ApiClient): OvnRequests {
  const lb: OvnRequests['lb'] = async (method, path, body) =>
    (await api.request('load-balancer', method, `/v2/lbaas${path}`, body)) as never
  const statusOf = async (id: string): Promise<string> => {
    const { loadbalancers } = await lb<{ loadbalancers: { provisioning_status: string }[] }>(
      'GET',
      `/loadbalancers?id=${id}`,
    )
    return loadbalancers[0]?.provisioning_status ?? 'gone'
  }
  return {
    lb,
    net: async (method, path, body) => (await api.request('network', method, `/v2.0${path}`, body)) as never,
    settled: async id => {
      let last = ''
      await until(`${id} is settled`, async () => {
        last = await statusOf(id)
        return last === 'ACTIVE' || last === 'ERROR'
      })
      if (last !== 'ACTIVE') throw new Error(`${id} is ${last}`)
    },
    remove: async id => {
      await lb('DELETE', `/loadbalancers/${id}?cascade=true`)
      await until(`${id} is gone`, async () => (await statusOf(id)) === 'gone')
    },
  }
}
