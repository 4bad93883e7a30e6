import type { KeyChannel } from '../../../amphora-agent/key-channel/client.js'
import { createBarbicanKeeper } from '../../bindings/barbican-keeper.js'
import type { Keeper } from '../../bindings/bindings.js'
import { startGateway } from '../../bindings/gateway.js'
import { createKraterKeeper } from '../../bindings/krater-keeper.js'
import { createLender } from '../../bindings/lender.js'
import { sendAsServiceUser } from '../../certificates/barbican/as-service-user.js'
import { createConsumers } from '../../certificates/barbican/consumers.js'
import { createCredentials } from '../../certificates/barbican/credentials.js'
import { createKeyManagerClient } from '../../certificates/barbican/key-manager-client.js'
import { readParts } from '../../certificates/barbican/reader.js'
import type { Database } from '../../database/connection.js'
import type { TransportSecurity } from '../../http/exchange.js'
import { INSPECTION_MILLISECONDS } from '../../inspection/checks.js'
import type { Logger } from '../../log/log.js'
import type { Instance } from './instance.js'
import { openKeyManagerAccess } from './key-manager-access.js'
import { loadBalancerUrl, serviceUrls } from './service-urls.js'

type Options = {
  channel: KeyChannel
  database: Database
  /** This machine's address on the management network. */
  address: string
  log: Logger
}

/**
 * The key manager that a worker binds certificates at: our own, or that of load_balancer.key_manager_url.
 * @throws ConfigurationError when a file that a setting names cannot be used
 */
export async function openCertificateKeeper(
  instance: Instance,
  { channel, database, address, log }: Options,
): Promise<{ keeper: Keeper; close: () => Promise<void> }> {
  const { key_manager_url: url, key_manager_gateway_port: port } = instance.config.load_balancer
  const urlOf = (id: string) => loadBalancerUrl(serviceUrls(instance.config).loadBalancer, id)
  if (url === undefined) return { keeper: createKraterKeeper(channel, urlOf), close: async () => undefined }

  const { keyManager, serviceUser, identity, close } = openKeyManagerAccess(instance, log)
  const client = createKeyManagerClient(keyManager)
  const lender = createLender({
    credentials: createCredentials(identity.connection, serviceUser),
    parts: container => readParts(client, serviceUser, container, AbortSignal.timeout(keyManager.answerSeconds * 1000)),
    services: {
      gateway: { host: address, port },
      identity: { url: identity.url, ...trustOf(identity.security) },
      keyManager: { url: keyManager.url, ...trustOf(keyManager.security) },
    },
  })
  const keeper = createBarbicanKeeper({
    keyManager,
    serviceUser,
    inspector: { inspectionMilliseconds: INSPECTION_MILLISECONDS },
    consumers: createConsumers(client, serviceUser, keyManager.answerSeconds),
    lender,
    reach: async () => {
      const signal = AbortSignal.timeout(keyManager.answerSeconds * 1000)
      await sendAsServiceUser(client, serviceUser, { method: 'GET', path: '/v1/secrets?limit=1' }, signal)
    },
    database,
    loadBalancerUrl: urlOf,
  })
  const gateway = await startGateway({ host: address, port, services: [keyManager.url, identity.url], log })
  return {
    keeper,
    close: async () => {
      await gateway.stop()
      client.close()
      close()
    },
  }
}

/** A client's own certificate stays here: its key is the controller's. */
const trustOf = ({ ca, insecure }: TransportSecurity) => ({ ca: ca ?? null, insecure })
