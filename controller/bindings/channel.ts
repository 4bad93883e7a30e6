import { type KeyChannel, openKeyChannel } from '../../amphora-agent/key-channel/client.js'
import { controllerChannelKey, type KeyChannelAccess } from '../key-channel/keys.js'

/** Opens the key channel as a controller. */
export const openControllerChannel = ({ endpoints, certificate, secret }: KeyChannelAccess): KeyChannel =>
  openKeyChannel({ endpoints, certificate, subject: 'controller', privateKey: controllerChannelKey(secret) })
