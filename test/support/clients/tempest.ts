import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { readCloud } from '../../../controller/cli/api-client.js'
import { providerCapabilities } from '../../../controller/provider/providers.js'
import { offersOf } from '../inputs/placement.js'
import type { Krater } from '../worlds/krater.js'
import { runSuite, type Suite, suiteDirectory } from './stestr.js'

/** Sections of tempest.conf. */
export type TempestSettings = Readonly<Record<string, Readonly<Record<string, string | number | boolean>>>>

/** What barbican-tempest-plugin needs to know. */
export const BARBICAN: TempestSettings = {
  service_available: { barbican: true },
  key_manager: { min_microversion: '1.0', max_microversion: '1.2' },
}

const PROVIDERS = providerCapabilities({ compute: offersOf({ driver: 'noop' }), ovn: null }).map(
  ({ name, description }) => `${name}:${description}`,
)

/** What octavia-tempest-plugin needs to know of a Krater with noop drivers. */
export const OCTAVIA: TempestSettings = {
  network: { project_networks_reachable: true },
  load_balancer: {
    test_with_noop: true,
    enabled_provider_drivers: PROVIDERS.join(','),
    // Without these, the tests of availability zones name null.
    ...{ availability_zone: 'one', availability_zone2: 'two', availability_zone3: 'three' },
    // Changes take effect at once.
    ...{ check_interval: 0.1, build_interval: 0.1, lb_build_interval: 0.1 },
    ...{ check_timeout: 60, build_timeout: 60, lb_build_timeout: 60 },
  },
}

/**
 * Runs tests of tempest or of one of its plugins against a Krater, as its administrator, who makes a project and a
 * user for each class of tests.
 * @param settings beside those that every Krater needs
 */
export async function runTempest(t: Test, krater: Krater, suite: Suite, settings: TempestSettings): Promise<void> {
  const directory = suiteDirectory(t)
  mkdirSync(join(directory, 'locks'))
  const { region_name: region, auth } = readCloud(krater.directory, 'krater-admin')
  const own: TempestSettings = {
    DEFAULT: { log_file: join(directory, 'tempest.log') },
    oslo_concurrency: { lock_path: join(directory, 'locks') },
    identity: { auth_version: 'v3', uri_v3: auth.auth_url, region },
    auth: {
      use_dynamic_credentials: true,
      create_isolated_networks: false,
      admin_username: auth.username,
      admin_password: auth.password,
      admin_project_name: auth.project_name,
      admin_domain_name: auth.user_domain_name,
      admin_system: 'all',
    },
    service_available: { nova: false, glance: false, cinder: false, swift: false, neutron: false },
  }
  const sections = Object.keys({ ...own, ...settings }).map(
    name => [name, { ...own[name], ...settings[name] }] as const,
  )
  writeFileSync(join(directory, 'tempest.conf'), iniOf(sections))
  await runSuite(t, directory, suite, { TEMPEST_CONFIG_DIR: directory, TEMPEST_CONFIG: 'tempest.conf' })
}

const iniOf = (sections: readonly (readonly [string, TempestSettings[string]])[]): string =>
  sections
    .map(
      ([name, values]) =>
        `[${name}]\n${Object.entries(values)
          .map(([key, value]) => `${key} = ${value}\n`)
          .join('')}`,
    )
    .join('\n')
