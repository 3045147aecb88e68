import java.io.File;
import java.io.FileOutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** Hadoop's mini YARN until SIGTERM. Arguments: the folder for yarn-site.xml, how many node managers, their variables. */
public class MiniYarn {
    public static void main(String[] given) throws Exception {
        YarnConfiguration conf = new YarnConfiguration();
        conf.setInt("yarn.nodemanager.resource.memory-mb", 3072);
        conf.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.5");
        conf.set("yarn.scheduler.capacity.root.queues", "default");
        conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
        conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
        // What each machine has of its own: containers get these variables of the node manager, and no others.
        conf.set("yarn.nodemanager.env-whitelist", given[2]);
        MiniYARNCluster cluster = new MiniYARNCluster("tidefold", Integer.parseInt(given[1]), 1, 1);
        cluster.init(conf);
        Runtime.getRuntime().addShutdownHook(new Thread(cluster::stop));
        cluster.start();
        File part = new File(given[0], "yarn-site.xml.part");
        try (FileOutputStream out = new FileOutputStream(part)) {
            cluster.getConfig().writeXml(out);
        }
        part.renameTo(new File(given[0], "yarn-site.xml"));
        Thread.currentThread().join();
    }
}
